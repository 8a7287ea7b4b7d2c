"""Every way in which a command ends, seen from the topics."""

from __future__ import annotations

import asyncio

import numpy as np

from connectors.kafka.base import TopicPartition
from schemas import Cancel, RefusedCommand, Render, Replicas, ReplicaSample, TransientFault, decode, topics
from schemas.canonical import cancel_key, h128, outcome_id

LONG = " ".join(f"word{i}" for i in range(40))
GPU_GROUP = "stoker-executor-gpu"


async def test_a_prefix_is_warmed_and_told(world) -> None:
    await world.start()
    command = world.warm(world.prefix(LONG), replicas=Replicas(names=("r0", "r1")))
    world.send(command)
    for replica in ("r0", "r1"):
        outcome = await world.outcome(command, replica)
        assert (outcome.status, outcome.reason) == ("applied", "done")
        assert outcome.outcome_id == outcome_id(command.command_id, replica)
        assert outcome.tokens_warmed >= 32
        assert len(world.engines[replica].requests) == 1
    states = await world.until(lambda: world.residency(command.target_key))
    assert {state.source for state in states} <= {"events", "applied"}
    assert states[-1].resident_tokens == 32
    await world.until(lambda: sum(world.committed(GPU_GROUP).values()) == 1)


async def test_what_is_there_is_resident_and_costs_nothing(world) -> None:
    await world.start()
    first, second = world.warm(world.prefix(LONG)), world.warm(world.prefix(LONG))
    world.send(first)
    await world.outcome(first)
    world.send(second)
    outcome = await world.outcome(second)
    assert (outcome.status, outcome.reason, outcome.tokens_warmed) == ("resident", "already_resident", 0)
    assert outcome.tokens_already_resident == 32


async def test_a_duplicate_gets_no_second_outcome(world) -> None:
    await world.start()
    command = world.warm(world.prefix(LONG))
    world.send(command, command)
    await world.outcome(command)
    world.send(command)
    await world.until(lambda: sum(world.committed(GPU_GROUP).values()) == 3)
    assert len(world.outcomes()) == 1
    assert len(world.engines["r0"].requests) == 1


async def test_hold_shadow_and_expired_are_recorded_and_not_applied(world) -> None:
    await world.start()
    held = world.warm(world.prefix(LONG), arm="hold")
    shadow = world.warm(world.prefix(LONG), shadow=True)
    expired = world.warm(world.prefix(LONG), expires_at_ms=1)
    world.send(held, shadow, expired)
    assert (await world.outcome(held)).status == "held_out"
    assert (await world.outcome(held)).arm == "hold"
    assert (await world.outcome(shadow)).status == "shadow"
    assert (await world.outcome(expired)).reason == "expired_on_arrival"
    assert world.engines["r0"].requests == []


async def test_a_shadow_executor_applies_nothing(world) -> None:
    await world.start(shadow=True)
    command, embedding = world.warm(world.prefix(LONG)), world.embed("hello there")
    world.send(command, embedding)
    assert (await world.outcome(command)).status == "shadow"
    assert (await world.outcome(embedding)).status == "shadow"
    assert world.engines["r0"].requests == []


async def test_a_frozen_scope_is_refused_and_others_are_not(world) -> None:
    world.policy("freeze", 1, scope="acme", frozen=True, reason="incident")
    await world.start()
    frozen = world.warm(world.prefix(LONG))
    free = world.warm(world.prefix(LONG, scope="globex"), scope="globex")
    world.send(frozen, free)
    outcome = await world.outcome(frozen)
    assert (outcome.status, outcome.reason, outcome.error) == ("rejected", "frozen", "incident")
    assert (await world.outcome(free)).status == "applied"


async def test_a_freeze_holds_within_a_second(world) -> None:
    world.engines["r0"].delay_s = 300
    await world.start(concurrency=1)
    took = []
    while not took or (took[-1] >= 1 and len(took) < 5):  # again where a busy machine is what was measured
        scope = f"scope {len(took)}"
        running, waiting = (world.warm(world.prefix(LONG + more, scope=scope), scope=scope) for more in ("", " more"))
        world.send(running)
        await world.until(lambda: world.engines["r0"]._running)
        world.send(waiting)
        await asyncio.sleep(0.3)
        begun = asyncio.get_running_loop().time()
        world.policy("freeze", 1, scope=scope, frozen=True)
        assert ((o := await world.outcome(running)).status, o.reason) == ("cancelled", "frozen")
        assert ((o := await world.outcome(waiting)).status, o.reason) == ("rejected", "frozen")
        took.append(asyncio.get_running_loop().time() - begun)
    assert took[-1] < 1


async def test_a_cancel_drops_what_waits_and_closes_what_runs(world) -> None:
    world.engines["r0"].delay_s = 30
    await world.start(concurrency=1)
    running, waiting = world.warm(world.prefix(LONG)), world.warm(world.prefix(LONG + " more"))
    late = world.warm(world.prefix(LONG + " even more"))
    world.send(running)
    await world.until(lambda: world.engines["r0"]._running)
    world.send(waiting)
    await asyncio.sleep(0.2)
    ids = (running.command_id, waiting.command_id, late.command_id)
    cancel = world.command(Cancel(command_ids=ids), cancel_key(ids), pool="gpu", action="cancel")
    world.send(cancel)
    assert (await world.outcome(running)).status == "cancelled"
    assert (await world.outcome(waiting)).reason == "cancelled"
    assert ((o := await world.outcome(cancel)).status, o.replica) == ("applied", "gpu")
    world.send(late)
    assert (await world.outcome(late)).status == "cancelled"


async def test_a_prefix_below_one_block_is_skipped(world) -> None:
    await world.start()
    command = world.warm(world.prefix("too short"))
    world.send(command)
    assert ((o := await world.outcome(command)).status, o.reason) == ("skipped", "below_block")
    assert world.engines["r0"].requests == []


async def test_content_that_is_missing_or_wrong_is_not_sent(world) -> None:
    await world.start()
    missing = world.warm(world.prefix("other " + LONG, store=False))
    target = world.prefix("third " + LONG, store=False)
    world.blobs.put("acme", {target.segments[0].hash: b"not that text at all"}, 60_000)
    wrong = world.warm(target)
    foreign = world.warm(world.prefix("of globex " + LONG, scope="globex"))
    world.send(missing, wrong, foreign)
    assert (await world.outcome(missing)).reason == "content_missing"
    assert (await world.outcome(wrong)).reason == "content_mismatch"
    assert (await world.outcome(foreign)).reason == "content_missing"
    assert world.engines["r0"].requests == []


async def test_a_salt_that_is_not_in_the_store_is_refused(world, monkeypatch) -> None:
    monkeypatch.setenv("ACME_SALT", "pepper")
    await world.start(salts={"acme": {"acme-salt": "env:ACME_SALT"}})
    salted = world.warm(world.prefix(LONG, render=Render(template_sha="t", salt_ref="acme-salt")))
    unknown = world.warm(world.prefix(LONG, render=Render(template_sha="t", salt_ref="other")))
    render = Render(template_sha="t", salt_ref="acme-salt")
    foreign = world.warm(world.prefix(LONG, scope="globex", render=render), scope="globex")
    world.send(salted, unknown, foreign)
    assert (await world.outcome(salted)).status == "applied"
    for refused in (unknown, foreign):
        assert ((o := await world.outcome(refused)).status, o.reason) == ("rejected", "unsupported")
        assert "executor.salts" in o.error
    asked = [request for request in world.engines["r0"].requests if request.request_id.startswith("warmup-")]
    assert [request.salted for request in asked] == [True]
    states = await world.until(lambda: world.residency(salted.target_key))
    assert states[-1].resident_tokens == 32


async def test_tools_are_sent_as_they_were_stored(world) -> None:
    tools = '[{"type": "function", "function": {"name": "find"}}]'
    world.blobs.put("acme", {h128(tools): tools.encode()}, 60_000)
    await world.start()
    command = world.warm(world.prefix(LONG, render=Render(template_sha="t", tools_sha=h128(tools))))
    absent = world.warm(world.prefix(LONG, render=Render(template_sha="t", tools_sha="a" * 32)))
    world.send(command, absent)
    assert (await world.outcome(command)).status == "applied"
    assert (await world.outcome(absent)).reason == "content_missing"


async def test_token_blocks_are_warmed_by_their_ids(world) -> None:
    await world.start()
    from schemas import Prefix, Segment
    from schemas.canonical import root_hash, segment_hash, token_block_content

    content = token_block_content(range(1000, 1048))
    block = segment_hash(root_hash("tiny", None, "", ""), "block", content)
    world.blobs.put("acme", {block: content.encode()}, 60_000)
    target = Prefix(model="tiny", segments=(Segment(block, 48, "block"),), segment_kind="token_block")
    first, second = world.warm(target), world.warm(target)
    world.send(first)
    assert ((o := await world.outcome(first)).status, o.tokens_warmed) == ("applied", 48)
    world.send(second)
    assert (await world.outcome(second)).status == "resident"


async def test_unknown_replicas_and_kinds_are_rejected(world) -> None:
    await world.start()
    nowhere = world.warm(world.prefix(LONG), replicas=Replicas(names=("r9",)))
    strange = world.warm(world.prefix(LONG), action="pin")
    world.send(nowhere, strange)
    assert (await world.outcome(nowhere)).reason == "no_replica"
    assert (await world.outcome(strange)).reason == "unsupported"


async def test_a_refusal_of_the_engine_ends_the_command(world) -> None:
    await world.start(telemetry_ms=60_000)
    await world.until(lambda: world.records(topics.TELEMETRY))
    world.engines["r0"].warm_messages = _raising(RefusedCommand("no such model"))
    command = world.warm(world.prefix(LONG))
    world.send(command)
    assert ((o := await world.outcome(command)).status, o.reason) == ("failed", "engine_refused")


async def test_transient_faults_are_tried_again_within_bounds(world) -> None:
    await world.start(telemetry_ms=60_000, attempts=3)
    warm, faults = world.engines["r0"].warm_messages, [TransientFault("503"), TransientFault("503")]

    async def flaky(*args, **kwargs):
        if faults:
            raise faults.pop()
        return await warm(*args, **kwargs)

    world.engines["r0"].warm_messages = flaky
    command = world.warm(world.prefix(LONG))
    world.send(command)
    assert (await world.outcome(command)).status == "applied"
    world.engines["r0"].warm_messages = _raising(TransientFault("connection refused"))
    down = world.warm(world.prefix(LONG + " again"))
    world.send(down)
    assert ((o := await world.outcome(down)).status, o.reason) == ("failed", "engine_unavailable")


async def test_a_sleeping_engine_is_left_asleep(world) -> None:
    await world.start()
    world.engines["r0"].fall_asleep()
    command = world.warm(world.prefix(LONG))
    world.send(command)
    assert ((o := await world.outcome(command)).status, o.reason) == ("skipped", "engine_sleeping")

    def asleep() -> bool:
        samples = [decode(value, ReplicaSample) for value in world.records(topics.TELEMETRY)]
        return any(sample.state == "sleeping" and sample.replica == "r0" for sample in samples)

    await world.until(asleep)


async def test_an_embedding_is_written_where_a_gateway_looks(world) -> None:
    await world.start()
    command = world.embed("where is my card", np.array([1, 2, 3, 4], np.float32))
    world.send(command)
    outcome = await world.outcome(command)
    assert (outcome.status, outcome.reason, outcome.bytes) == ("applied", "done", 16)
    assert (await world.embeddings.get("acme", "f" * 32, "where is my card")).tolist() == [1, 2, 3, 4]
    assert 0 < await world.embeddings.remaining_ms("acme", "f" * 32, "where is my card") <= 3_600_000
    again = world.embed("where is my card")
    world.send(again)
    assert (await world.outcome(again)).status == "resident"


async def test_an_embedding_without_vector_or_text_is_skipped(world) -> None:
    await world.start()
    nothing = world.embed("never stored", store=False)
    withheld = world.embed("text withheld", store=False)
    world.vectors.put("acme", "f" * 32, {withheld.target.query_sha256: np.ones(4, np.float32)}, 60_000)
    mismatch = world.embed("the true text", store=False)
    world.vectors.put("acme", "f" * 32, {mismatch.target.query_sha256: np.ones(4, np.float32)}, 60_000)
    world.blobs.put("acme", {mismatch.target.query_sha256: b"another text"}, 60_000)
    world.send(nothing, withheld, mismatch)
    assert (await world.outcome(nothing)).reason == "vector_missing"
    assert (await world.outcome(withheld)).reason == "text_withheld"
    assert (await world.outcome(mismatch)).reason == "content_mismatch"


async def test_a_scope_that_spent_its_quota_is_refused(world) -> None:
    world.policy("budget", 1, prefill_share=0.001, prefill_tokens_per_s=100, burst_ms=1000)
    await world.start(quota_slack=1)
    commands = [world.warm(world.prefix(f"{i} {LONG}")) for i in range(3)]
    world.send(commands[0])
    assert (await world.outcome(commands[0])).status == "applied"
    world.send(*commands[1:])
    assert ((o := await world.outcome(commands[1])).status, o.reason) == ("rejected", "quota")


async def test_the_lowest_is_turned_away_when_the_line_is_full(world) -> None:
    world.engines["r0"].delay_s = 30
    await world.start(concurrency=1, queue_bound=2, drain_s=0)
    running = world.warm(world.prefix(LONG))
    world.send(running)
    await world.until(lambda: world.engines["r0"]._running)
    low = world.warm(world.prefix("low " + LONG), priority=1, qos="best_effort")
    high = [world.warm(world.prefix(f"high {i} {LONG}"), qos="guaranteed") for i in range(2)]
    world.send(low)
    await asyncio.sleep(0.2)
    world.send(*high)
    assert ((o := await world.outcome(low)).status, o.reason) == ("rejected", "queue_full")
    assert len(world.outcomes()) == 1


async def test_bad_commands_are_dead_letters_and_do_not_stop_the_rest(world) -> None:
    await world.start()
    world.producer.send(topics.COMMANDS.name, b"{not json", partition=0)
    world.producer.send(topics.COMMANDS.name, None, key=b"tombstone", partition=0)
    command = world.warm(world.prefix(LONG))
    world.send(command)
    assert (await world.outcome(command)).status == "applied"
    await world.until(lambda: world.records(topics.DEAD_LETTERS))
    await world.until(lambda: world.committed(GPU_GROUP).get(0, 0) >= 2)


async def test_commands_of_other_pools_are_left_to_others(world) -> None:
    await world.start()
    other = world.command(world.prefix(LONG), "prefix:x", pool="elsewhere")
    world.send(other)
    await world.until(lambda: sum(world.committed(GPU_GROUP).values()) == 1)
    assert world.outcomes() == []


async def test_an_offset_waits_for_everything_before_it(world) -> None:
    world.engines["r0"].delay_s = 30
    await world.start(concurrency=1, drain_s=0)
    slow = world.warm(world.prefix(LONG))
    held = world.warm(world.prefix("held " + LONG), arm="hold")
    place = TopicPartition(topics.COMMANDS.name, 0)
    from schemas import encode

    for command in (slow, held):
        world.producer.send(topics.COMMANDS.name, encode(command), partition=0)
    assert (await world.outcome(held)).status == "held_out"
    await asyncio.sleep(0.5)
    assert world.broker.group(GPU_GROUP).committed.get(place, 0) == 0


def _raising(error: Exception):
    async def call(*_args, **_kwargs):
        raise error

    return call
