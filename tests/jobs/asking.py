"""What tests of the running job ask it, and how they wait for the command that it answers with."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from schemas import Prefix, RequestEvent, Segment, WarmupCommand, encode
from schemas.canonical import h128, segment_hash
from tests.jobs.conftest import WATCHED
from tests.jobs.deployment import Deployment, now_ms


def conversation(*contents: str) -> tuple[Segment, ...]:
    """A system prompt of its own and what users said after it, 100 tokens each."""
    parent, found = h128("root"), []
    for index, content in enumerate(contents):
        role = "user" if index else "system"
        parent = segment_hash(parent, role, content)
        found.append(Segment(parent, 100, role))
    return tuple(found)


def ask(deployment: Deployment, query: str, segments: tuple[Segment, ...] = (), **fields: object) -> None:
    """One request, sent: of the watched tenant to pool `gpu`, unless told otherwise."""
    name, at_ms = uuid.uuid4().hex, now_ms()
    told = {
        "phase": "started",
        "session": uuid.uuid4().hex,
        "tenant": WATCHED,
        "pool": "gpu",
        "model": "m",
        **fields,
    }
    event = RequestEvent(
        event_id=name, request_id=name, occurred_at_ms=at_ms, query=query, segments=segments, **told
    )  # fmt: skip
    deployment.send(encode(event), at_ms=at_ms, key=str(told["session"]).encode())


def issued(
    deployment: Deployment, trigger: str, wanted: Callable[[WarmupCommand], bool] = lambda _: True
) -> WarmupCommand | None:
    """The first command that a trigger asked for so far; None where there is none."""
    commands = deployment.outputs.commands.values()
    return next((each for each in commands if each.reason.trigger == trigger and wanted(each)), None)


def waited(
    deployment: Deployment,
    trigger: str,
    wanted: Callable[[WarmupCommand], bool],
    ask_again: Callable[[], None],
    pause_s: float = 1.0,
) -> WarmupCommand:
    """The command that a trigger asks for. A planner whose event time lags says nothing: demand goes on meanwhile."""
    asked = 0.0

    def told() -> bool:
        nonlocal asked
        if time.monotonic() - asked > pause_s:
            ask_again()
            deployment.flush()
            asked = time.monotonic()
        return issued(deployment, trigger, wanted) is not None

    deployment.wait(told, f"the command of {trigger}")
    command = issued(deployment, trigger, wanted)
    assert command is not None
    return command


def begins_with(segments: tuple[Segment, ...]) -> Callable[[WarmupCommand], bool]:
    """Whether a command warms a prefix of that beginning."""
    return lambda command: isinstance(command.target, Prefix) and command.target.segments[: len(segments)] == segments
