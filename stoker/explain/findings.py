"""What the topics hold about one command: itself, its tick, what lost there, what it stood on, what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from schemas import (
    Adapter,
    Alternative,
    BrokenConfiguration,
    Focus,
    PlannerState,
    Prefix,
    Score,
    Target,
    WarmupCommand,
    WarmupOutcome,
)
from schemas.canonical import adapter_name

SHORTEST_ID = 6
KINDS: tuple[type[msgspec.Struct], ...] = (WarmupCommand, WarmupOutcome, PlannerState, Focus, Score)

Source = Callable[[], Iterable[msgspec.Struct]]


@dataclass
class Findings:
    """All that is known of a command.

    Attributes:
        tick: commands that its planner chose in the same tick, by falling priority; with it.
        left_out: what its scope could not pay beside them.
        state: what the planner said of itself at that tick, or last before it.
        earlier: commands of the same target before it, the latest last.
        outcomes: by replica, the one that counts.
        focus, score: of its scope and query, the last before it.
    """

    command: WarmupCommand
    tick: list[WarmupCommand] = field(default_factory=list)
    left_out: tuple[Alternative, ...] = ()
    state: PlannerState | None = None
    earlier: list[WarmupCommand] = field(default_factory=list)
    outcomes: dict[str, WarmupOutcome] = field(default_factory=dict)
    focus: Focus | None = None
    score: Score | None = None

    @property
    def rank(self) -> int:
        """Its place among the commands of its tick, from 1."""
        return 1 + [each.command_id for each in self.tick].index(self.command.command_id)


def find(command_id: str, source: Source) -> Findings:
    """Everything about a command; its id may be cut short.

    Args:
        source: all messages, in any order; it is gone through twice. What Kafka holds twice counts once.

    Raises:
        BrokenConfiguration: no such command, or several whose ids begin alike.
    """
    found = Findings(_command(command_id, source()))
    command = found.command
    peers: dict[str, WarmupCommand] = {}
    earlier: dict[str, WarmupCommand] = {}
    for message in source():
        if isinstance(message, WarmupCommand) and message.pool == command.pool:
            same_tick = message.issued_at_ms == command.issued_at_ms and message.lane == command.lane == "tick"
            if same_tick:
                peers[message.command_id] = message
            same_target = (message.scope, message.target_key) == (command.scope, command.target_key)
            if same_target and message.issued_at_ms < command.issued_at_ms:
                earlier[message.command_id] = message
        elif isinstance(message, WarmupOutcome) and message.command_id == command.command_id:
            before = found.outcomes.get(message.replica)
            if before is None or (before.status != "applied" and before.finished_at_ms <= message.finished_at_ms):
                found.outcomes[message.replica] = message
        elif isinstance(message, PlannerState) and message.pool == command.pool:
            if _later(message, found.state, command):
                found.state = message
        elif isinstance(message, Focus) and _is_of(message, command) and _later(message, found.focus, command):
            found.focus = message
        elif isinstance(message, Score) and _judges(message, command) and _later(message, found.score, command):
            found.score = message
    found.tick = sorted(peers.values(), key=lambda each: (-each.priority, each.command_id))
    found.earlier = sorted(earlier.values(), key=lambda each: each.issued_at_ms)
    if found.state is not None and found.state.at_ms == command.issued_at_ms and command.lane == "tick":
        found.left_out = tuple(each for each in found.state.left_out if each.scope == command.scope)
    return found


def _command(command_id: str, messages: Iterable[msgspec.Struct]) -> WarmupCommand:
    wanted = command_id.lower()
    if len(wanted) < SHORTEST_ID:
        raise BrokenConfiguration(f"command {command_id}: give at least {SHORTEST_ID} digits of its id")
    found = {
        each.command_id: each
        for each in messages
        if isinstance(each, WarmupCommand) and each.command_id.startswith(wanted)
    }
    if not found:
        raise BrokenConfiguration(
            f"no command {command_id}: warmup.commands holds them for 6 hours, a file those that were there"
        )
    if len(found) > 1:
        raise BrokenConfiguration(f"{len(found)} commands begin with {command_id}: {', '.join(sorted(found)[:5])}")
    [command] = found.values()
    return command


def _later(
    message: PlannerState | Focus | Score, held: PlannerState | Focus | Score | None, command: WarmupCommand
) -> bool:
    """Whether a message is of before the command, and later than the one that is held."""
    return message.at_ms <= command.issued_at_ms and (held is None or message.at_ms >= held.at_ms)


def _is_of(focus: Focus, command: WarmupCommand) -> bool:
    names = (command.unit, command.target_key, *_asked_as(command.target))
    return focus.scope == command.scope and any(key.key in names for key in focus.keys)


def _asked_as(target: Target) -> tuple[str | None, ...]:
    """Names under which requests ask for a target, beside its unit and its key."""
    if isinstance(target, Adapter):
        return (adapter_name(target.name, target.version),)
    return (target.adapter, target.render.template_sha) if isinstance(target, Prefix) else ()


def _judges(score: Score, command: WarmupCommand) -> bool:
    return (score.scope, score.query_sha256) == (command.scope, command.unit)
