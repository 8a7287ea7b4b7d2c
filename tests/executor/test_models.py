"""Model commands, and the first token that an executor asks of a replica which has just become ready."""

from __future__ import annotations

import asyncio

from schemas import Cancel, Model, RefusedCommand, TransientFault, topics
from schemas.canonical import cancel_key, model_key


def command(world, action: str, replica: str = "r1", model: str = "tiny", **fields):
    return world.command(Model(model=model, replica=replica), model_key(replica), pool="gpu", action=action, **fields)


async def ended(world, action: str, **fields):
    sent = command(world, action, **fields)
    world.send(sent)
    return await world.outcome(sent)


def requests(world, replica: str) -> list[str]:
    return [request.request_id for request in world.engines[replica].requests]


async def test_a_probe_is_one_token_on_the_replica_that_it_names(world) -> None:
    await world.start()
    outcome = await ended(world, "probe")
    assert (outcome.status, outcome.reason, outcome.replica) == ("applied", "done", "r1")
    assert requests(world, "r1") == [f"probe-{outcome.command_id}"]
    assert requests(world, "r0") == []
    assert world.engines["r1"].requests[0].prompt_tokens < world.engines["r1"].block_tokens


async def test_a_model_or_replica_that_is_not_there_is_told(world) -> None:
    await world.start()
    assert ((o := await ended(world, "probe", model="none")).status, o.reason) == ("failed", "engine_refused")
    assert ((o := await ended(world, "probe", replica="r9")).status, o.reason) == ("rejected", "no_replica")
    assert ((o := await ended(world, "warm")).status, o.reason) == ("rejected", "unsupported")


async def test_a_sleeping_engine_is_woken_and_probed(world) -> None:
    await world.start()
    world.engines["r1"].fall_asleep()
    assert ((o := await ended(world, "probe")).status, o.reason) == ("skipped", "engine_sleeping")
    woken = await ended(world, "wake")
    assert (woken.status, woken.reason) == ("applied", "done")
    assert await world.engines["r1"].is_sleeping() is False
    assert requests(world, "r1") == [f"probe-{woken.command_id}"]
    assert ((o := await ended(world, "wake")).status, o.reason) == ("resident", "already_resident")


async def test_an_engine_that_goes_on_sleeping_is_unavailable(world) -> None:
    await world.start(attempts=2, telemetry_ms=60_000)
    engine = world.engines["r1"]
    engine.fall_asleep()

    async def wake(**_kwargs) -> None:
        return

    engine.wake = wake
    assert ((o := await ended(world, "wake")).status, o.reason) == ("failed", "engine_unavailable")


async def test_a_load_is_of_what_the_engine_serves_or_unsupported(world) -> None:
    await world.start()
    assert ((o := await ended(world, "load")).status, o.reason) == ("resident", "already_resident")
    assert ((o := await ended(world, "load", model="other")).status, o.reason) == ("rejected", "unsupported")
    world.engines["r1"].fall_asleep()
    assert (await ended(world, "load")).reason == "engine_sleeping"


async def test_a_cancel_closes_a_probe_that_runs(world) -> None:
    await world.start()
    world.engines["r1"].delay_s = 60
    probe = command(world, "probe")
    world.send(probe)
    await world.until(lambda: world.engines["r1"]._running)
    ids = (probe.command_id,)
    world.send(world.command(Cancel(command_ids=ids), cancel_key(ids), pool="gpu", action="cancel"))
    assert (await world.outcome(probe)).status == "cancelled"
    await world.until(lambda: world.engines["r1"]._running == 0)


async def test_a_cold_replica_gives_its_first_token_to_the_executor(world) -> None:
    await world.start(readiness_probe=True)
    for replica in world.engines:
        await world.until(lambda replica=replica: requests(world, replica))
        assert [name.startswith(f"probe-{replica}-") for name in requests(world, replica)] == [True]
    seen = len(world.records(topics.TELEMETRY))
    await world.until(lambda: len(world.records(topics.TELEMETRY)) > seen + 10)
    assert [len(requests(world, replica)) for replica in world.engines] == [1, 1], "once, not with each sample"


async def test_a_replica_that_woke_up_is_asked_again_and_one_that_served_before_is_not(world) -> None:
    await world.engines["r0"].probe(None, request_id="user")
    await world.start(readiness_probe=True)
    await world.until(lambda: requests(world, "r1"))
    world.engines["r0"].fall_asleep()
    await asyncio.sleep(0.5)
    assert requests(world, "r0") == ["user"]
    await world.engines["r0"].wake()
    await world.until(lambda: len(requests(world, "r0")) == 2)


async def test_a_readiness_probe_is_tried_again_when_the_engine_does_not_answer(world) -> None:
    for engine in world.engines.values():
        faults = [TransientFault("not yet"), TransientFault("not yet")]

        async def probe(model, probe=engine.probe, faults=faults, **kwargs) -> None:
            if faults:
                raise faults.pop()
            await probe(model, **kwargs)

        engine.probe = probe
    await world.start(readiness_probe=True)
    for replica in world.engines:
        await world.until(lambda replica=replica: requests(world, replica))


async def test_a_refused_readiness_probe_ends_nothing(world) -> None:
    asked: list[str] = []

    async def refuse(*_args, **_kwargs) -> None:
        asked.append("once")
        raise RefusedCommand("no such route")

    for engine in world.engines.values():
        engine.probe = refuse
    executor = await world.start(readiness_probe=True)
    await world.until(lambda: len(asked) == 2)
    seen = len(world.records(topics.TELEMETRY))
    await world.until(lambda: len(world.records(topics.TELEMETRY)) > seen + 4)
    assert executor.broken() == []
    assert len(asked) == 2


async def test_nothing_is_asked_in_shadow_nor_while_all_is_frozen(world) -> None:
    world.policy("freeze", 1, frozen=True)
    await world.start(readiness_probe=True)
    await world.until(lambda: len(world.records(topics.TELEMETRY)) > 10)
    assert [requests(world, replica) for replica in world.engines] == [[], []]
    await world.stop()
    world.executors.clear()
    world.policy("freeze", 2, frozen=False)
    seen = len(world.records(topics.TELEMETRY))
    await world.start(readiness_probe=True, shadow=True)
    await world.until(lambda: len(world.records(topics.TELEMETRY)) > seen + 10)
    assert [requests(world, replica) for replica in world.engines] == [[], []]
