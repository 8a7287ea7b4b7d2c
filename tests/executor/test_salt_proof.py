"""Whether a replica keeps salts apart: what four answers say, who is tried when, what is not warmed where it fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.engines.base import Salt, Warmed
from connectors.engines.fake import FakeEngine
from connectors.metrics import PrometheusMetrics
from connectors.settings import SecretRef
from executor.apply.patience import NotSent, Patience
from executor.apply.salts import SaltStore
from executor.outcomes import Ending
from executor.salt_proof import AGAIN_S, FAILED, HOLDS_S, LEAST_TOKENS, TRIES, SaltProofs, fresh_ids, judged, unit_of
from schemas import OutcomeReason, Prefix, RefusedCommand, Render, Replicas, Segment, TransientFault

SECRETS = {"ACME_SALT": "pepper", "GLOBEX_SALT": "chili"}
SALTS = {"acme": {"main": SecretRef(env="ACME_SALT")}, "globex": {"main": SecretRef(env="GLOBEX_SALT")}}
SALTED = Render(template_sha="t", salt_ref="main")
LONG = " ".join(f"word{i}" for i in range(60))


class Dropping(FakeEngine):
    """Forgets the salt on the way to its cache."""

    async def _request(self, model, ids, adapter, _salt, *rest: Any) -> Any:
        return await super()._request(model, ids, adapter, None, *rest)


class Leaking(FakeEngine):
    """Has one space for all that is salted."""

    async def _request(self, model, ids, adapter, salt, *rest: Any) -> Any:
        return await super()._request(model, ids, adapter, salt and Salt("same"), *rest)


class Losing(FakeEngine):
    """Keeps nothing that is salted; counts what it is asked."""

    async def _request(self, model, ids, adapter, salt, *rest: Any) -> Any:
        answered = await super()._request(model, ids, adapter, salt, *rest)
        if salt is not None:
            self._blocks.clear()
        return answered


class Unsalted(FakeEngine):
    """Takes no salts."""

    async def _request(self, model, ids, adapter, salt, *rest: Any) -> Any:
        if salt is not None:
            raise RefusedCommand("no cache_salt here")
        return await super()._request(model, ids, adapter, salt, *rest)


class Silent(FakeEngine):
    """Gives no usage details."""

    def _told(self, request: Any, _chat: bool) -> Warmed:
        return Warmed(request.prompt_tokens, None, None)


class Trials:
    """Proofs of some engines, on a clock of their own."""

    def __init__(self, **engines: FakeEngine) -> None:
        self.now_s, self.may_ask, self.engines = 0.0, True, dict(engines)
        self.metrics = PrometheusMetrics()
        self.proofs = SaltProofs(
            SaltStore(SALTS),
            self.engines,
            lambda: list(self.engines),
            lambda: self.may_ask,
            lambda: self.now_s,
            fresh_ids,
            5.0,
            self.metrics,
        )

    async def refusal(self, replica: str = "r0", scope: str = "acme", salt_ref: str | None = "main") -> Any:
        from test_rules import command

        render = Render(template_sha="t", salt_ref=salt_ref)
        target = Prefix(model="tiny", segments=(Segment("a" * 32, 16, "system"),), render=render)
        return await self.proofs.refusal(command(scope=scope, target=target), replica)

    def shows(self, state: str, replica: str = "r0") -> bool:
        line = f'stoker_executor_salts_state_count{{replica="{replica}",state="{state}"}} 1.0'
        return line in self.metrics.exposition().decode()


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("engine", "state"),
    [
        (FakeEngine(), "proven"),
        (FakeEngine(block_tokens=1), "proven"),
        (FakeEngine(block_tokens=784), "proven"),
        (Dropping(), "crosses"),
        (Leaking(), "crosses"),
        (Losing(), "lost"),
        (Unsalted(), "refused"),
        (Silent(), "untold"),
        (FakeEngine(max_prompt_tokens=20), "untold"),
    ],
)
async def test_what_a_replica_does_with_salts_is_found_out_and_shown(engine: FakeEngine, state: str) -> None:
    trials = Trials(r0=engine)
    ending = await trials.refusal()
    assert trials.shows(state)
    assert bool(trials.proofs.failing) == (ending is not None) == (state in FAILED)
    if ending is not None:
        assert (ending.status, ending.reason) == ("rejected", "salt_mismatch")
        assert ending.error.startswith(f"{state}: ")
    told = f"{ending} {trials.proofs.failing} {trials.metrics.exposition().decode()}"
    assert not [secret for secret in SECRETS.values() if secret in told]


async def test_one_trial_is_four_requests_and_holds_for_all_salted_commands() -> None:
    trials = Trials(r0=FakeEngine())
    await asyncio.gather(*(trials.refusal(scope=scope) for scope in ("acme", "globex", "acme")))
    requests = trials.engines["r0"].requests
    assert [request.salted for request in requests] == [True, True, False, True]
    assert all(request.request_id.startswith("probe-salt-r0-") for request in requests)
    trials.now_s = HOLDS_S - 1
    await trials.refusal()
    assert len(requests) == 4
    trials.now_s = HOLDS_S
    await trials.refusal()
    assert len(requests) == 8


async def test_commands_without_a_salt_of_their_scope_need_no_trial() -> None:
    trials = Trials(r0=Dropping())
    assert await trials.refusal(salt_ref=None) is None
    assert await trials.refusal(salt_ref="other") is None  # the applier says that it is not the scope's
    assert trials.engines["r0"].requests == []


async def test_a_replica_that_was_set_right_is_used_again() -> None:
    trials = Trials(r0=Losing())
    assert (await trials.refusal()).reason == "salt_mismatch"
    assert len(trials.engines["r0"].requests) == 4 * TRIES
    trials.engines["r0"].__class__ = FakeEngine
    trials.now_s = AGAIN_S - 1
    assert (await trials.refusal()).reason == "salt_mismatch"
    trials.now_s = AGAIN_S
    assert await trials.refusal() is None
    assert trials.proofs.failing == []
    assert trials.shows("proven")
    assert not trials.shows("lost")


async def test_another_engine_under_the_same_name_is_tried_anew() -> None:
    trials = Trials(r0=FakeEngine())
    assert await trials.refusal() is None
    trials.engines["r0"] = Dropping()
    assert (await trials.refusal()).reason == "salt_mismatch"


async def test_without_an_answer_nothing_salted_is_sent_and_a_sleeping_engine_is_not_tried() -> None:
    engine = FakeEngine()
    trials = Trials(r0=engine)
    engine.faults.append(TransientFault("no route"))
    with pytest.raises(NotSent, match="how it keeps salts could not be tried: no route"):
        await trials.refusal()
    engine.fall_asleep()
    assert await trials.refusal() is None  # the applier says that it sleeps
    assert engine.requests == []
    await engine.wake()
    assert await trials.refusal() is None
    assert trials.shows("proven")


@pytest.mark.parametrize(("faults", "status"), [(1, "applied"), (2, "failed")])
async def test_a_trial_without_an_answer_is_made_again_as_often_as_any_attempt(faults: int, status: str) -> None:
    engine = FakeEngine()
    trials = Trials(r0=engine)
    engine.faults += [TransientFault("no route") for _ in range(faults)]

    async def apply(_: float) -> Ending:
        return await trials.refusal() or Ending("applied", OutcomeReason.DONE)

    ending = await Patience(attempts=2, backoff_ms=1, call_ms=30_000).spend(apply, 60_000, lambda: 0)
    assert ending.status == status
    assert trials.shows("proven") == (status == "applied")


async def test_replicas_are_tried_ahead_of_commands_unless_nothing_may_be_asked() -> None:
    trials = Trials(r0=FakeEngine())
    trials.may_ask = False
    running = asyncio.create_task(trials.proofs.run())
    try:
        await asyncio.sleep(0.05)
        assert trials.engines["r0"].requests == []
        trials.may_ask = True
        trials.engines["r1"] = Dropping()
        async with asyncio.timeout(30):
            while not (trials.shows("proven") and trials.shows("crosses", "r1")):
                await asyncio.sleep(0.01)
        assert [line.partition(":")[0] for line in trials.proofs.failing] == ["r1"]
        del trials.engines["r1"]
        async with asyncio.timeout(30):
            while trials.proofs.failing:
                await asyncio.sleep(0.01)
        assert not running.done()
    finally:
        running.cancel()


async def test_the_other_salt_is_another_scopes_where_it_has_another_value(monkeypatch) -> None:
    one, another = SaltStore(SALTS).pair()
    assert (one.value, another.value) == ("pepper", "chili")
    monkeypatch.setenv("GLOBEX_SALT", "pepper")
    one, another = SaltStore(SALTS).pair()
    assert another.value not in SECRETS.values()
    assert another.well_formed


counts = st.one_of(st.none(), st.integers(0, 4_000))


@given(counts, counts, counts, counts, st.one_of(st.none(), st.integers(1, 2_000)))
def test_a_proof_says_that_the_prompt_was_found_where_it_belongs_and_nowhere_else(
    first, other, bare, own, block
) -> None:
    unit = unit_of(block)
    assert unit >= LEAST_TOKENS
    assert block is None or unit % block == 0
    proof = judged(first, other, bare, own, block)
    asked = (first, other, bare, own)
    if None in asked:
        assert proof.state == "untold"
        return
    assert (proof.state == "proven") == ([count >= unit for count in asked] == [False, False, False, True])
    if first < unit:
        assert (proof.state == "crosses") == (max(other, bare) >= unit)
    assert proof.failed == (proof.state in FAILED)
    assert proof.state != "lost" or block is not None


async def test_a_pool_with_a_replica_that_drops_salts_warms_there_only_what_has_none(world) -> None:
    world.engines["r1"] = Dropping()
    executor = await world.start(salts=SALTS, readiness_probe=True)
    both = Replicas(max=2, names=("r0", "r1"))
    salted = world.warm(world.prefix(LONG, render=SALTED), replicas=both)
    plain = world.warm(world.prefix("other " + LONG), replicas=both)
    world.send(salted, plain)
    assert (await world.outcome(salted, "r0")).status == "applied"
    refused = await world.outcome(salted, "r1")
    assert (refused.status, refused.reason) == ("rejected", "salt_mismatch")
    assert (await world.outcome(plain, "r1")).status == "applied"
    assert executor.unready() == []
    assert [line.partition(":")[0] for line in executor.held_back()] == ["r1"]
    warmed = [each for each in world.engines["r1"].requests if each.request_id.startswith("warmup-")]
    assert [each.request_id for each in warmed] == [f"warmup-{plain.command_id}"]
