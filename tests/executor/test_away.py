"""What a command needs is away until patience ends: each kind says what was missing, and nothing is half done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from connectors.redis import fake
from executor.ports import wall_clock_ms
from schemas import Model, ReplicaSample, StackFault, TransientFault, decode, topics
from schemas.canonical import model_key

LONG = " ".join(f"word{i}" for i in range(40))
FINGERPRINT = "f" * 32


def gone() -> fake.MemoryStore:
    """A Redis that never answers. The ledger has another one."""
    return fake.MemoryStore(offline=True)


@pytest.mark.parametrize(
    "part",
    [
        {"vectors": fake.MemoryAsyncVectors(gone())},
        {"blobs": fake.MemoryAsyncBlobs(gone())},
        {"embeddings": fake.MemoryEmbeddingCache(gone(), model_name="minilm")},
    ],
    ids=lambda part: next(iter(part)),
)
async def test_an_embedding_whose_store_stays_away_fails_and_says_so(world, part: dict[str, Any]) -> None:
    await world.start(world.ports(**part), attempts=3)
    command = world.embed("where is my card")
    world.send(command)
    assert ((o := await world.outcome(command)).status, o.reason) == ("failed", "store_unavailable")
    assert await world.embeddings.get("acme", FINGERPRINT, "where is my card") is None


async def test_a_prefix_whose_text_stays_away_fails_and_asks_the_engine_nothing(world) -> None:
    await world.start(world.ports(blobs=fake.MemoryAsyncBlobs(gone())), attempts=3)
    command = world.warm(world.prefix(LONG))
    world.send(command)
    assert ((o := await world.outcome(command)).status, o.reason) == ("failed", "store_unavailable")
    assert world.engines["r0"].requests == []


@pytest.mark.parametrize(("odd", "status"), [(2, "applied"), (3, "failed")])
async def test_a_redis_that_answers_oddly_while_it_dies_or_begins_is_asked_again(world, odd: int, status: str) -> None:
    class Odd(fake.MemoryAsyncBlobs):
        calls = 0

        async def get(self, *request: Any) -> dict[str, bytes]:
            self.calls += 1
            if self.calls <= odd:
                raise StackFault("unknown command; is it Redis 7 or later?")
            return await super().get(*request)

    await world.start(world.ports(blobs=Odd(world.store)), attempts=3)
    command = world.warm(world.prefix(LONG))
    world.send(command)
    assert (o := await world.outcome(command)).status == status, o
    if status == "failed":
        assert o.reason == "store_unavailable"
        assert "unknown command" in o.error


async def test_while_all_of_redis_is_away_nothing_is_done_and_afterwards_only_what_has_not_expired(world) -> None:
    await world.start()
    dead, alive = world.embed("too late", expires_at_ms=wall_clock_ms() + 1_500), world.embed("in time")
    world.store.offline = True
    world.send(dead, alive)
    await world.until(lambda: wall_clock_ms() > dead.expires_at_ms)
    done = [outcome for outcome in world.outcomes() if outcome.status != "expired"]
    assert done == [], "without the ledger nobody knows whether another executor has it"
    world.store.offline = False
    assert (await world.outcome(dead)).status == "expired"
    assert (await world.outcome(alive)).status == "applied"
    assert await world.embeddings.get("acme", FINGERPRINT, "too late") is None
    assert np.array_equal(await world.embeddings.get("acme", FINGERPRINT, "in time"), np.ones(4, np.float32))


async def test_a_model_command_for_a_dead_engine_fails_and_the_replica_is_told_lost(world) -> None:
    await world.start(attempts=3)

    def states() -> list[str]:
        samples = [decode(value, ReplicaSample) for value in world.records(topics.TELEMETRY)]
        return [sample.state for sample in samples if sample.replica == "r1"]

    await world.until(lambda: "ready" in states())
    engine = world.engines["r1"]
    engine._fail_if_told = nobody_answers
    await world.until(lambda: states()[-1] == "lost")
    for action in ("probe", "load", "wake"):
        command = world.command(Model(model="tiny", replica="r1"), model_key("r1"), pool="gpu", action=action)
        world.send(command)
        outcome = await world.outcome(command)
        assert (outcome.status, outcome.reason, outcome.replica) == ("failed", "engine_unavailable", "r1")
        assert outcome.error == "connection refused"
    assert engine.requests == []


def nobody_answers() -> None:
    """What every call to a process that is gone comes to."""
    raise TransientFault("connection refused")
