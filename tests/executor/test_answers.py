"""How Response commands end, seen from the topics and from the cache."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from connectors.redis.keys import blob_key
from connectors.redis.semantic import Answer, CacheName
from connectors.redis.semantic_layout import entry_of
from executor import sweeper
from executor.apply.response import ResponseApplier
from executor.ports import wall_clock_ms
from schemas import RefusedCommand, Response, StackFault, TransientFault
from schemas.canonical import h128, query_sha256, response_key

SCOPE = "acme"
FINGERPRINT = "f" * 32
NAME = CacheName(SCOPE, "answers", FINGERPRINT)
VECTOR = np.asarray([1, 0, 0, 0], np.float32)


def target_of(query: str, response: str | None, **fields: Any) -> Response:
    values = {
        "cache": NAME.cache,
        "fingerprint": FINGERPRINT,
        "query_sha256": query_sha256(query),
        "response_ref": None if response is None else h128(response),
        "model": "tiny",
        "reward": 0.9,
        "until_ms": wall_clock_ms() + 600_000,
        **fields,
    }
    return Response(**values)


def answer(world: Any, query: str, response: str | None, scope: str = SCOPE, target: Any = None, **fields: Any) -> Any:
    """A command for an answer whose texts and vector are stored."""
    world.vectors.put(scope, FINGERPRINT, {query_sha256(query): VECTOR}, 600_000)
    texts = {query_sha256(query): query.encode()}
    if response is not None:
        texts[h128(response)] = response.encode()
    world.blobs.put(scope, texts, 600_000)
    target = target or target_of(query, response)
    key = response_key(target.cache, target.query_sha256)
    return world.command(target, key, pool="redis:main", scope=scope, **fields)


async def test_an_answer_is_put_where_a_gateway_finds_it(world) -> None:
    await world.start()
    command = answer(world, "where is my card?", "In your letter box.")
    world.send(command)
    outcome = await world.outcome(command)
    assert (outcome.status, outcome.reason, outcome.replica) == ("applied", "done", "redis:main")
    assert outcome.bytes == len("where is my card?") + len("In your letter box.") + VECTOR.nbytes
    (found,) = await world.answers.nearest(NAME, VECTOR, 0.01)
    assert (found.prompt, found.response) == ("where is my card?", "In your letter box.")
    assert found.metadata["command_id"] == command.command_id
    assert found.until_ms == command.target.until_ms
    again = answer(world, "where is my card?", "In your letter box.")
    world.send(again)
    assert (await world.outcome(again)).status == "resident"


async def test_an_answer_that_the_gateway_has_put_there_itself_is_not_claimed(world) -> None:
    await world.start()
    same, other = answer(world, "q", "a"), answer(world, "r", "b")
    for query, response in (("q", "a"), ("r", "another")):
        entry = entry_of(NAME, Answer(query, response, VECTOR, 0, 0, ""), 0)
        own = {name: value for name, value in entry.fields.items() if name in ("prompt", "response", "prompt_vector")}
        world.store.write(f"{entry.key.rpartition(':')[0]}:{h128(query)}", own, 60_000)
    world.send(same, other)
    assert ((o := await world.outcome(same)).status, o.reason) == ("resident", "already_resident")
    assert await world.answers.find(NAME, query_sha256("q")) == []
    assert (await world.outcome(other)).status == "applied", "the gateway's answer is another one"


async def test_a_held_out_answer_is_not_put_there(world) -> None:
    await world.start()
    command = answer(world, "q", "a", arm="hold")
    world.send(command)
    assert (await world.outcome(command)).status == "held_out"
    assert await world.answers.find(NAME, query_sha256("q")) == []


async def test_what_may_not_or_cannot_be_served_is_skipped_with_its_reason(world) -> None:
    await world.start(reward_floor=0.5)
    at_floor = answer(world, "floor", "a", target=target_of("floor", "a", reward=0.5))
    cases = {
        "below_reward_floor": answer(world, "poor", "a", target=target_of("poor", "a", reward=0.49)),
        "expired_content": answer(world, "late", "a", target=target_of("late", "a", until_ms=wall_clock_ms() - 1)),
        "unsupported": answer(world, "made", None),
        "answer_missing": answer(world, "lost", None, target=target_of("lost", "never stored")),
        "digest_mismatch": answer(world, "false", "true", target=target_of("false", "true", response_ref="d" * 32)),
        "vector_missing": world.command(target_of("no vector", "a"), "response:answers:v", pool="redis:main"),
        "text_withheld": answer(world, "held", "a", target=target_of("held", "a", query_sha256="e" * 32)),
        "content_mismatch": answer(world, "mixed", "a", target=target_of("mixed", "a", query_sha256="c" * 32)),
    }
    world.blobs.put(SCOPE, {"d" * 32: b"another answer", "c" * 32: b"another query"}, 600_000)
    world.vectors.put(SCOPE, FINGERPRINT, {"e" * 32: VECTOR, "c" * 32: VECTOR}, 600_000)
    world.send(at_floor, *cases.values())
    for reason, command in cases.items():
        outcome = await world.outcome(command)
        assert (outcome.status, outcome.reason) == ("skipped", reason)
        assert await world.answers.find(NAME, command.target.query_sha256) == []
    assert (await world.outcome(at_floor)).status == "applied"


async def test_content_of_another_scope_is_out_of_reach(world) -> None:
    await world.start()
    answer(world, "secret?", "secret!", scope="globex")
    stolen = world.command(target_of("secret?", "secret!"), "response:answers:s", pool="redis:main")
    world.send(stolen)
    assert (await world.outcome(stolen)).reason == "vector_missing"


async def test_damaged_content_is_skipped(world) -> None:
    await world.start()
    command = answer(world, "q", "a")
    world.store.values[blob_key(SCOPE, h128("a"))] = b"no frame"
    world.send(command)
    assert ((o := await world.outcome(command)).status, o.reason) == ("skipped", "content_mismatch")


async def test_an_invalidated_answer_is_gone_and_its_late_warm_up_does_not_bring_it_back(world) -> None:
    await world.start()
    good, bad = answer(world, "good", "a"), answer(world, "bad", "b")
    world.send(good, bad)
    assert {(await world.outcome(good)).status, (await world.outcome(bad)).status} == {"applied"}
    bad_target = target_of("bad", "b", until_ms=1)
    gone = answer(world, "bad", "b", target=bad_target, action="invalidate")
    world.send(gone)
    outcome = await world.outcome(gone)
    assert (outcome.status, outcome.reason, outcome.action) == ("applied", "done", "invalidate")
    assert await world.answers.nearest(NAME, VECTOR, 0.01, 9) == await world.answers.find(NAME, query_sha256("good"))
    late = answer(world, "bad", "b", issued_at_ms=gone.issued_at_ms - 1)
    again = answer(world, "bad", "b", target=bad_target, action="invalidate")
    world.send(late, again)
    assert ((o := await world.outcome(late)).status, o.reason) == ("skipped", "revoked")
    assert ((o := await world.outcome(again)).status, o.reason) == ("skipped", "already_absent")
    anew = answer(world, "bad", "b", issued_at_ms=again.issued_at_ms + 1)
    world.send(anew)
    assert (await world.outcome(anew)).status == "applied"


async def test_an_invalidation_waits_for_no_budget(world) -> None:
    world.policy("budget", 1, embeddings_per_s=0.0)
    await world.start()
    warm, gone = answer(world, "q", "a"), answer(world, "q", "a", action="invalidate")
    world.send(warm, gone)
    assert (await world.outcome(warm)).reason == "quota"
    assert (await world.outcome(gone)).reason == "already_absent"


async def test_an_invalidation_passes_a_freeze_even_one_that_comes_while_it_waits(world) -> None:
    await world.start()
    bad, later = answer(world, "bad", "b"), answer(world, "worse", "c")
    world.send(bad, later)
    assert {(await world.outcome(bad)).status, (await world.outcome(later)).status} == {"applied"}
    due_ms = wall_clock_ms() + 1_000
    waiting = [answer(world, "worse", "c", action=action, not_before_ms=due_ms) for action in ("warm", "invalidate")]
    world.send(*waiting)
    world.policy("freeze", 1, scope=SCOPE, frozen=True)
    assert ((o := await world.outcome(waiting[0])).status, o.reason) == ("rejected", "frozen")
    gone = answer(world, "bad", "b", action="invalidate")
    world.send(gone)
    assert (await world.outcome(gone)).status == "applied"
    assert (await world.outcome(waiting[1])).status == "applied"
    assert await world.answers.nearest(NAME, VECTOR, 0.01, 9) == []


async def test_a_damaged_vector_keeps_no_bad_answer_alive(world) -> None:
    await world.start()
    command = answer(world, "q", "a")
    world.send(command)
    await world.outcome(command)
    gone = answer(world, "q", "a", action="invalidate")
    world.store.values[next(key for key in world.store.values if ":vec:" in key)] = b"xyz"
    world.send(gone)
    assert (await world.outcome(gone)).status == "applied"
    assert await world.answers.find(NAME, query_sha256("q")) == []


class Stubborn:
    """A cache that fails as it is told, and otherwise loses what is put into it."""

    def __init__(self, fault: Exception | None = None, written: str = "applied") -> None:
        self.fault = fault
        self.written = written

    async def put(self, _name: Any, _answer: Any) -> str:
        if self.fault is not None:
            raise self.fault
        return self.written

    async def find(self, _name: Any, _query: str) -> list[Any]:
        return []

    async def nearest(self, *_: Any) -> list[Any]:
        return []

    async def sweep(self, _now_ms: int) -> int:
        return 0


@pytest.mark.parametrize(
    ("cache", "status", "reason"),
    [
        (Stubborn(TransientFault("gone")), "failed", "store_unavailable"),
        (Stubborn(StackFault("an answer of no sense")), "failed", "store_unavailable"),
        (Stubborn(RefusedCommand("no search", "unsupported")), "rejected", "unsupported"),
        (Stubborn(RefusedCommand("other fields", "index_mismatch")), "rejected", "index_mismatch"),
        (Stubborn(), "applied", "unverified"),
        (Stubborn(written="resident"), "applied", "unverified"),
    ],
)
async def test_a_cache_that_does_not_do_it(world, cache, status: str, reason: str) -> None:
    await world.start(world.ports(answers=cache))
    command = answer(world, "q", "a")
    world.send(command)
    assert ((o := await world.outcome(command)).status, o.reason) == (status, reason)


async def test_an_entry_that_another_replaced_at_once_is_not_called_verified(world) -> None:
    class Racing(Stubborn):
        async def find(self, name: CacheName, query: str) -> list[Any]:
            now_ms = wall_clock_ms()
            other = Answer("q", "other", VECTOR, now_ms + 60_000, now_ms, "tiny")
            await world.answers.put(name, other)
            found: list[Any] = await world.answers.find(name, query)
            return found

    applier = ResponseApplier(world.ports().blobs, world.ports().vectors, Racing(), 0.5, wall_clock_ms)
    ending = await applier.apply(answer(world, "q", "a"))
    assert (ending.status, ending.reason) == ("applied", "unverified")


async def test_an_answer_is_swept_at_its_end_though_a_reader_prolonged_it(world, monkeypatch) -> None:
    monkeypatch.setattr(sweeper, "PERIOD_S", 0.05)
    await world.start()
    until_ms = wall_clock_ms() + 1_000
    command = answer(world, "q", "a", target=target_of("q", "a", until_ms=until_ms))
    world.send(command)
    assert (await world.outcome(command)).status == "applied"
    (entry,) = await world.answers.find(NAME, query_sha256("q"))
    world.store.ends_ms[entry.key] += 3_600_000
    await world.until(lambda: entry.key not in world.store.values)
    assert wall_clock_ms() >= until_ms


async def test_one_sweeper_a_redis_and_the_next_takes_over(world, monkeypatch) -> None:
    monkeypatch.setattr(sweeper, "PERIOD_S", 0.02)
    swept: list[str] = []

    def counting(name: str) -> Any:
        class Counting(Stubborn):
            async def sweep(self, _now_ms: int) -> int:
                swept.append(name)
                return 0

        return world.ports(answers=Counting())

    first = await world.start(counting("first"))
    await world.start(counting("second"))
    await world.until(lambda: len(swept) > 3)
    assert set(swept) == {"first"}
    await first.drain()
    await world.until(lambda: swept[-1] == "second")


async def test_a_sweeper_outlives_a_redis_that_is_away(world, monkeypatch) -> None:
    monkeypatch.setattr(sweeper, "PERIOD_S", 0.02)
    executor = await world.start()
    world.store.offline = True
    await asyncio.sleep(0.1)
    world.store.offline = False
    command = answer(world, "q", "a", target=target_of("q", "a", until_ms=wall_clock_ms() + 500))
    world.send(command)
    await world.outcome(command)
    for key in list(world.store.ends_ms):
        if ":responses:" in key:
            world.store.ends_ms[key] += 3_600_000
    await world.until(lambda: not any(":responses:" in key and key.count(":") == 5 for key in world.store.values))
    assert executor.broken() == []


async def test_a_shadow_executor_does_not_sweep(world) -> None:
    executor = await world.start(shadow=True)
    assert [department.sweeper for department in executor._departments] == [None, None]
