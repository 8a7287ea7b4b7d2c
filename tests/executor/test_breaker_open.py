"""A whole executor in memory whose replica is overloaded, pressed, or busy: what it refuses, holds back and lets go."""

from __future__ import annotations

import asyncio
import dataclasses

from msgspec import structs

from connectors.engines.base import EngineMetrics
from connectors.engines.fake import FakeEngine
from schemas import Model, Replicas
from schemas.canonical import model_key

LONG = " ".join(f"word{i}" for i in range(40))


class LoadedEngine(FakeEngine):
    """Says how much of its memory running requests hold."""

    usage = 0.0

    async def metrics(self) -> EngineMetrics:
        return dataclasses.replace(await super().metrics(), kv_usage=self.usage)


def loaded(world, usage: float = 0.95, **fields) -> LoadedEngine:
    engine = LoadedEngine(**fields)
    engine.usage = usage
    world.engines["r0"] = engine
    return engine


def brief(world) -> None:
    """Breakers that close again within a test's time."""
    world.policy("breaker", 1, open_ms=300, judge_ms=100)


async def test_an_overloaded_replica_refuses_best_effort_holds_burstable_and_lets_guaranteed_go(world) -> None:
    engine = loaded(world)
    brief(world)
    await world.start()
    best, burst, sure = (
        world.warm(world.prefix(f"{qos} {LONG}"), qos=qos) for qos in ("best_effort", "burstable", "guaranteed")
    )
    world.send(best, burst, sure)
    refused = await world.outcome(best)
    assert (refused.status, refused.reason, refused.error) == ("rejected", "breaker_open", "usage")
    assert (await world.outcome(sure)).status == "applied"
    await asyncio.sleep(0.5)
    assert [outcome.command_id for outcome in world.outcomes()].count(burst.command_id) == 0
    assert len(engine.requests) == 1
    engine.usage = 0.1
    assert (await world.outcome(burst)).status == "applied"


async def test_another_replica_and_redis_go_on(world) -> None:
    loaded(world)
    await world.start()
    there = world.warm(world.prefix(LONG), qos="best_effort", replicas=Replicas(names=("r1",)))
    embedded = world.embed("how are you", qos="best_effort")
    world.send(there, embedded)
    assert (await world.outcome(there)).status == "applied"
    assert (await world.outcome(embedded)).status == "applied"


async def test_what_waits_behind_it_expires_in_time(world) -> None:
    loaded(world)
    await world.start()
    command = world.warm(world.prefix(LONG))
    command = structs.replace(command, expires_at_ms=command.issued_at_ms + 1_500)
    world.send(command)
    outcome = await world.outcome(command)
    assert (outcome.status, outcome.reason) == ("expired", "expired_queued")
    assert outcome.finished_at_ms - command.expires_at_ms < 10_000


async def test_best_effort_that_runs_or_waits_when_it_opens_leaves(world) -> None:
    engine = loaded(world, usage=0.0, delay_s=20.0)
    await world.start(concurrency=1)
    running, waiting = (world.warm(world.prefix(f"{n} {LONG}"), qos="best_effort", priority=n) for n in (9, 1))
    world.send(running)
    await world.until(lambda: engine._running)
    world.send(waiting)
    await asyncio.sleep(0.3)
    engine.usage = 0.95
    closed, turned_away = await world.outcome(running), await world.outcome(waiting)
    assert (closed.status, closed.reason) == ("cancelled", "breaker_open")
    assert (turned_away.status, turned_away.reason) == ("rejected", "breaker_open")


async def test_a_probe_passes_an_open_breaker(world) -> None:
    loaded(world)
    await world.start()
    target = Model(model="tiny", replica="r0")
    command = world.command(target, model_key("r0"), pool="gpu", action="probe", qos="best_effort")
    world.send(command)
    assert (await world.outcome(command)).status == "applied"


async def test_switched_off_by_policy_nothing_is_held(world) -> None:
    loaded(world)
    world.policy("breaker", 1, enabled=False)
    await world.start()
    command = world.warm(world.prefix(LONG), qos="best_effort")
    world.send(command)
    assert (await world.outcome(command)).status == "applied"


async def test_an_executor_that_starts_anew_beside_an_overloaded_replica_lets_nothing_slip_through(world) -> None:
    engine = loaded(world)
    first = await world.start()
    best = world.warm(world.prefix(f"best {LONG}"), qos="best_effort")
    world.send(best)
    await world.outcome(best)
    await first.drain()
    burst = world.warm(world.prefix(LONG))
    world.send(burst)
    await world.start()
    again = world.warm(world.prefix(f"again {LONG}"), qos="best_effort")
    world.send(again)
    assert (await world.outcome(again)).reason == "breaker_open"
    await asyncio.sleep(0.3)
    assert not engine.requests


async def test_the_executor_that_does_not_speak_for_a_replica_obeys_the_one_that_does(world) -> None:
    loaded(world)
    await world.start()
    second = await world.start()
    await world.until(lambda: second._shared.braking.brake("r0").state == "open")
    assert not second._speaker.leases.holds("r0")
    commands = [world.warm(world.prefix(f"{n} {LONG}"), qos="best_effort") for n in range(12)]
    world.send(*commands)
    outcomes = [await world.outcome(command) for command in commands]
    assert {outcome.reason.value for outcome in outcomes} == {"breaker_open"}


async def test_moderate_load_on_an_ordinary_replica_is_never_held_back(world) -> None:
    await world.start()
    commands = [world.warm(world.prefix(f"{n % 30} {LONG}"), qos="best_effort") for n in range(120)]
    for number in range(0, len(commands), 10):
        world.send(*commands[number : number + 10])
        await asyncio.sleep(0.1)
    outcomes = [await world.outcome(command) for command in commands]
    assert {outcome.status for outcome in outcomes} == {"applied", "resident"}
