"""Warm-ups are not demand: what an engine was asked by the executor comes back as events, and changes no total."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import msgspec
import pytest

from schemas import Prefix, RequestEvent, encode
from tests.e2e.asking import TENANTS, Asking
from tests.e2e.whole import PATIENCE_S, Whole
from tests.jobs.deployment import now_ms
from tests.jobs.traffic import Mix

COMMANDS = 500
"""For both replicas: a thousand warm-ups."""

pytestmark = [pytest.mark.service, pytest.mark.slow]


def test_a_thousand_warm_ups_through_the_whole_path_change_no_window_total(whole: Whole) -> None:
    seed = uuid.uuid4().int % 10**6
    with whole.asked(Mix(seed, Asking(f"w{seed}x", seed, whole.town.blobs, documents=20))):
        whole.wait_applied(now_ms(), "the start")
    town, outputs = whole.town, whole.job.outputs
    before, totals, panes = whole.settle(), outputs.totals(), dict(outputs.panes)

    commands = [town.warm(" ".join(f"{seed}w{number}.{word}" for word in range(20))) for number in range(COMMANDS)]
    town.send(*commands)
    names = {command.command_id for command in commands}
    whole.job.wait(lambda: names <= outputs.commands.keys(), "the commands", PATIENCE_S)
    whole.settle()
    warmed = [told[-1] for told in outputs.outcomes.values() if told[0].command_id in names]
    assert [outcome.status for outcome in warmed] == ["applied"] * 2 * COMMANDS
    asked = [place for place in whole.requests() if place[1] in names]
    assert len(asked) == 2 * COMMANDS

    for replica, command_id in asked:
        target = outputs.commands[command_id].target
        assert isinstance(target, Prefix)
        for event in as_a_gateway_tells_it(replica, command_id, target):
            whole.job.send(encode(event), at_ms=event.occurred_at_ms)
    after = whole.settle()
    assert after == {**before, "not_demand": before["not_demand"] + 4 * COMMANDS}
    assert outputs.totals() == totals
    assert outputs.panes.keys() == panes.keys()
    assert {place: stats.events for place, stats in outputs.panes.items()} == {
        place: stats.events for place, stats in panes.items()
    }


def as_a_gateway_tells_it(replica: str, command_id: str, target: Prefix) -> Iterator[RequestEvent]:
    """Both events of a warm-up whose query, were it demand, would be asked for again and again."""
    at_ms = now_ms()
    request_id = f"warmup-{command_id}-{replica}"
    event = RequestEvent(
        event_id=f"{request_id}-started", request_id=request_id, phase="started", occurred_at_ms=at_ms,
        origin="warmup", tenant=TENANTS[int(command_id, 16) % len(TENANTS)], user=f"user-{command_id[:2]}", pool="gpu",
        model=target.model, query=f"what was warmed by {command_id[0]}", segments=target.segments,
        render=target.render, input_tokens=target.tokens, replica=replica,
    )  # fmt: skip
    yield event
    yield msgspec.structs.replace(
        event, event_id=f"{request_id}-finished", phase="finished", completed_at_ms=at_ms, output_tokens=1, status=200
    )
