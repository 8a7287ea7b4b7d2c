"""One bad record, one refusal, one dead part: what becomes of all the others."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from connectors.redis import fake
from executor.ledger_keeper import decoded
from executor.service import Executor
from schemas import (
    BrokenConfiguration,
    Cancel,
    DeadLetter,
    RefusedCommand,
    Replicas,
    StackFault,
    TransientFault,
    decode,
    encode,
    topics,
)
from schemas.canonical import cancel_key

LONG = " ".join(f"word{i}" for i in range(40))


async def test_a_command_whose_id_is_none_is_a_dead_letter(world) -> None:
    await world.start()
    broken = json.loads(encode(world.warm(world.prefix(LONG))))
    broken["command_id"] = "not hexadecimal at all, but long"
    world.producer.send(topics.COMMANDS.name, json.dumps(broken).encode(), partition=0)
    command = world.warm(world.prefix(LONG))
    world.producer.send(topics.COMMANDS.name, encode(command), partition=0)
    assert (await world.outcome(command)).status == "applied"
    letter, *_ = await world.until(lambda: world.records(topics.DEAD_LETTERS))
    assert decode(letter, DeadLetter).source_topic == topics.COMMANDS.name
    await world.until(lambda: world.committed("stoker-executor-gpu").get(0, 0) == 2)


async def test_a_record_that_breaks_our_own_code_is_a_dead_letter(world) -> None:
    class Ledger(fake.MemoryLedger):
        async def read(self, command_id, replica):
            if replica == "r1":
                raise KeyError(replica)
            return await super().read(command_id, replica)

    await world.start(world.ports(ledger=Ledger(world.store)))
    breaks = world.warm(world.prefix(LONG), replicas=Replicas(names=("r0", "r1")))
    fine = world.warm(world.prefix("fine " + LONG))
    for command in (breaks, fine):
        world.producer.send(topics.COMMANDS.name, encode(command), partition=0)
    assert (await world.outcome(fine)).status == "applied"
    assert (await world.outcome(breaks, "r0")).status == "applied"
    (letter,) = await world.until(lambda: world.records(topics.DEAD_LETTERS))
    assert "KeyError" in decode(letter, DeadLetter).detail
    await world.until(lambda: world.committed("stoker-executor-gpu").get(0, 0) == 2)


async def test_an_outcome_whose_id_is_none_is_nobodys(world) -> None:
    executor = await world.start()
    command = world.warm(world.prefix(LONG))
    world.send(command)
    good = await world.outcome(command)
    values = []
    for name in ("command_id", "outcome_id"):
        bad = json.loads(encode(good))
        bad[name] = "z" * 32
        values.append(json.dumps(bad).encode())
    for value in values:
        world.producer.send(topics.OUTCOMES.name, value, partition=0)
    assert list(decoded([*values, encode(good)])) == [good]
    later = world.warm(world.prefix("later " + LONG))
    world.send(later)
    await world.until(lambda: any(later.command_id.encode() in value for value in world.records(topics.OUTCOMES)))
    executor._shared.keeper.doubt()
    await asyncio.wait_for(executor._shared.keeper.assured(), 10)
    assert executor.broken() == []


async def test_an_outcome_that_the_broker_refuses_is_sent_again_with_another_time(world) -> None:
    send, refusals = world.producer.send, []

    def refusing(topic, value, *, timestamp_ms=None, **rest):
        if topic == topics.OUTCOMES.name and timestamp_ms is not None:
            refusals.append(timestamp_ms)
            raise RefusedCommand("Kafka: InvalidTimestampError")
        return send(topic, value, timestamp_ms=timestamp_ms, **rest)

    world.producer.send = refusing
    await world.start()
    command = world.warm(world.prefix(LONG))
    world.send(command)
    assert (await world.outcome(command)).status == "applied"
    assert len(refusals) == 1


async def test_a_cancel_that_comes_while_content_is_prolonged_is_not_lost(world) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    class Slow(fake.MemoryAsyncBlobs):
        async def renew(self, scope, hashes, ttl_ms):
            asked.set()
            await go.wait()
            return await super().renew(scope, hashes, ttl_ms)

    executor = await world.start(world.ports(blobs=Slow(world.store)))
    command = world.warm(world.prefix(LONG))
    world.send(command)
    await asyncio.wait_for(asked.wait(), 10)
    ids = (command.command_id,)
    world.send(world.command(Cancel(command_ids=ids), cancel_key(ids), pool="gpu", action="cancel"))
    await world.until(lambda: command.command_id in executor._shared.cancelled)
    go.set()
    assert (await world.outcome(command)).status == "cancelled"
    assert world.engines["r0"].requests == []


@pytest.mark.slow
async def test_a_dead_part_ends_the_process_with_a_sentence(world) -> None:
    class Ledger(fake.MemoryLedger):
        async def finish(self, *_):
            raise BrokenConfiguration("Redis: WRONGPASS")

    seed = await world.start()
    executor = Executor(seed.tree, world.ports(ledger=Ledger(world.store)))
    await seed.drain()
    running = asyncio.create_task(executor.run(asyncio.Event()))
    await world.until(lambda: executor.ready)
    world.send(world.warm(world.prefix(LONG), arm="hold"))
    with pytest.raises(StackFault, match=r"cannot go on.*Settler.*WRONGPASS") as caught:
        await asyncio.wait_for(running, 30)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(("method", "ends"), [("is_sleeping", "resident"), ("_account", "applied")])
async def test_a_fault_before_the_prompt_was_sent_claims_no_warm_up(world, monkeypatch, method: str, ends: str) -> None:
    """What is resident at the next call was so before; after a fault of the prompt itself it may be that one's work."""
    await world.start()
    engine, target = world.engines["r0"], world.prefix(LONG)
    world.send(first := world.warm(target))
    assert (await world.outcome(first)).status == "applied"
    answers, faults = getattr(engine, method), [TransientFault("no answer")]

    def once(*args: Any) -> Any:
        if faults:
            raise faults.pop()
        return answers(*args)

    monkeypatch.setattr(engine, method, once)
    world.send(again := world.warm(target))
    assert (await world.outcome(again)).status == ends
    assert faults == []
