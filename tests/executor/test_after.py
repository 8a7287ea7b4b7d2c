"""`after` in whole executors in memory: the order in which things are applied, and what an outcome says of it."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from connectors.engines.fake import FakeEngine
from executor.outcomes import Ending, outcome_of
from executor.ports import wall_clock_ms
from schemas import Adapter, OutcomeReason, Replicas, WarmupCommand, encode, topics
from schemas.canonical import adapter_key

ADAPTER = Adapter(name="support", version="3", source="/nowhere/support")
NAME = "support@3"
UNKNOWN = "9" * 32
BOTH = Replicas(max=2, names=("r0", "r1"))
GROUP = "stoker-executor-gpu"


class SlowLoad(FakeEngine):
    """Loads an adapter only when it is let to."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.may_load = asyncio.Event()

    async def load_adapter(self, name: str, path: str, *, pinned: bool = False, timeout_s: float | None = None) -> None:
        await self.may_load.wait()
        await super().load_adapter(name, path, pinned=pinned, timeout_s=timeout_s)


def load(world, **fields: Any) -> WarmupCommand:
    values = {"action": "load", "replicas": Replicas(names=("r0",)), **fields}
    return world.command(ADAPTER, adapter_key(ADAPTER.name, ADAPTER.version), pool="gpu", **values)


def prefix(world, *after: str, text: str = "one two three", **fields: Any) -> WarmupCommand:
    words = " ".join(f"{text}{i}" for i in range(40))
    return world.warm(world.prefix(words, adapter=NAME), after=after, **fields)


def ends(world) -> dict[tuple[str, str], list[tuple[str, OutcomeReason]]]:
    found: dict[tuple[str, str], list[tuple[str, OutcomeReason]]] = {}
    for outcome in world.outcomes():
        found.setdefault((outcome.command_id, outcome.replica), []).append((outcome.status, outcome.reason))
    return found


async def test_a_prefix_waits_for_its_adapter_and_what_needs_nothing_goes_before_it(world) -> None:
    world.engines["r0"] = engine = SlowLoad()
    await world.start()
    adapter = load(world, priority=1)
    first, other = prefix(world, adapter.command_id, priority=999), world.warm(world.prefix("x " * 40), priority=1)
    world.send(first, other, adapter)
    assert (await world.outcome(other)).status == "applied"
    await asyncio.sleep(0.3)
    assert (first.command_id, "r0") not in ends(world)
    engine.may_load.set()
    assert (await world.outcome(first)).status == "applied"
    assert (await world.outcome(adapter)).finished_at_ms <= (await world.outcome(first)).finished_at_ms
    await world.until(lambda: sum(world.committed(GROUP).values()) == 3)


async def test_a_held_command_is_not_committed_and_goes_on_in_the_next_executor(world) -> None:
    world.engines["r0"] = engine = SlowLoad()
    before = await world.start(drain_s=0.2)
    adapter = load(world)
    held = prefix(world, adapter.command_id)
    world.send(adapter, held)
    await world.until(lambda: before._departments[0].needs.ended(adapter.command_id, "r0"))
    await before.drain()
    assert ends(world) == {}
    assert sum(world.committed(GROUP).values()) == 0
    engine.may_load.set()
    await world.start()
    assert (await world.outcome(held)).status == "applied"
    assert [len(each) for each in ends(world).values()] == [1, 1]


async def test_what_another_executor_made_of_it_counts(world) -> None:
    """The adapter's command is in another pool's hands here: only its outcome is seen."""
    await world.start()
    adapter = load(world, expires_at_ms=wall_clock_ms() + 60_000)
    held, other = prefix(world, adapter.command_id), prefix(world, adapter.command_id, text="four")
    world.send(held)
    ending = Ending("failed", OutcomeReason.DIGEST_MISMATCH)
    outcome = outcome_of(adapter, "r0", ending, wall_clock_ms())
    world.producer.send(topics.OUTCOMES.name, encode(outcome), key=b"any")
    found = await world.outcome(held)
    assert (found.status, found.reason) == ("skipped", OutcomeReason.NEEDED_MISSING)
    assert found.error == f"needs {adapter.command_id}, which is failed"
    world.send(other)
    assert (await world.outcome(other)).reason is OutcomeReason.NEEDED_MISSING
    assert world.engines["r0"].requests == []


async def test_a_replica_waits_only_for_what_is_for_it(world) -> None:
    world.engines["r0"] = engine = SlowLoad()
    await world.engines["r1"].load_adapter(NAME, str(ADAPTER.source))
    await world.start()
    adapter = load(world)
    both = prefix(world, adapter.command_id, replicas=BOTH)
    world.send(adapter, both)
    assert (await world.outcome(both, "r1")).status == "applied"
    assert (both.command_id, "r0") not in ends(world)
    engine.may_load.set()
    assert (await world.outcome(both, "r0")).status == "applied"


async def test_a_circle_ends_with_the_first_that_expires_and_what_was_never_sent_holds_nobody(world) -> None:
    await world.engines["r0"].load_adapter(NAME, str(ADAPTER.source))
    await world.start()
    soon, late = wall_clock_ms() + 1_500, wall_clock_ms() + 60_000
    one, two = prefix(world, text="a", expires_at_ms=soon), prefix(world, text="b", expires_at_ms=late)
    lone = prefix(world, UNKNOWN, text="c", expires_at_ms=late)
    one, two = replace(one, after=(two.command_id,)), replace(two, after=(one.command_id,))
    world.send(one, two, lone)
    first, second = await world.outcome(one), await world.outcome(two)
    assert (first.status, first.reason) == ("expired", OutcomeReason.NEEDED_MISSING)
    assert (second.status, second.reason) == ("skipped", OutcomeReason.NEEDED_MISSING)
    assert second.finished_at_ms < late
    assert (await world.outcome(lone)).status == "applied"


async def test_a_cancel_and_a_freeze_reach_what_is_held_back(world) -> None:
    world.engines["r0"] = engine = SlowLoad()
    executor = await world.start()
    adapter = load(world)
    taken_back, frozen = prefix(world, adapter.command_id), prefix(world, adapter.command_id, text="z")
    world.send(adapter, taken_back, frozen)
    await world.until(lambda: len(executor._departments[0]._line) == 2)
    executor._departments[0].pool.stop([taken_back.command_id], "cancelled")
    assert (await world.outcome(taken_back)).status == "cancelled"
    world.policy("freeze", 1, frozen=True)
    assert (await world.outcome(frozen)).reason is OutcomeReason.FROZEN
    engine.may_load.set()


async def test_what_was_held_out_is_not_loaded_by_the_next_attempt_of_its_prefix(world) -> None:
    """That attempt names nothing in `after`, since the load has ended, and the engine would load it by request."""
    world.engines["r0"] = engine = FakeEngine(resolves=True)
    await world.start()
    adapter = load(world, arm="hold")
    named, unnamed = prefix(world, adapter.command_id), prefix(world, text="later")
    world.send(adapter, named)
    assert (await world.outcome(adapter)).status == "held_out"
    world.send(unnamed, other := world.warm(world.prefix("x " * 40)))
    for each in (named, unnamed):
        found = await world.outcome(each)
        assert (found.status, found.reason) == ("skipped", OutcomeReason.NEEDED_MISSING)
        assert found.error == f"adapter {NAME} is not loaded there"
    assert (await world.outcome(other)).status == "applied"
    assert await engine.adapters() == ()


async def test_a_rebalance_while_one_waits_loses_and_doubles_nothing(world) -> None:
    """The load runs on where it began, its prefixes come to another executor, and wait for it there."""
    world.engines["r0"] = engine = SlowLoad()
    await world.start()
    adapter = load(world)
    held = [prefix(world, adapter.command_id, text=f"word{number}x") for number in range(12)]
    world.send(adapter, *held)
    (first,) = world.executors
    await world.until(lambda: len(first._departments[0]._line) == len(held))
    second = await world.start()
    await world.until(lambda: len(second._departments[0]._line) > 0)
    await world.until(lambda: sum(len(each._departments[0]._line) for each in world.executors) == len(held))
    assert ends(world) == {}
    engine.may_load.set()
    for command in held:
        assert (await world.outcome(command)).status == "applied"
    await world.until(lambda: sum(world.committed(GROUP).values()) == len(held) + 1)
    assert [len(each) for each in ends(world).values()] == [1] * (len(held) + 1)
