"""Admission: whether a command is applied on a replica, and if not, how it ended (step 4). Pure.

The order matters. The ledger speaks first, because a command that has an outcome must not get another one, whatever has
changed since: its expiry has passed, its scope is frozen now, it was taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from analytics.pools import is_redis
from executor.outcomes import Ending
from schemas import Adapter, Embedding, Model, OutcomeReason, Prefix, Response, Target, Value, WarmupCommand
from schemas.warmup_command import Action

Seen = Literal["absent", "started", "ended"]
"""What is known of a command on a replica: nothing; somebody began it; its outcome is published."""


@dataclass(frozen=True)
class Circumstances:
    """What holds at the moment of the decision.

    Attributes:
        braked: why the replica's breaker refuses the command; empty where it does not.
    """

    now_ms: int
    seen: Seen = "absent"
    cancelled: bool = False
    frozen: tuple[str, ...] = ()
    shadow: bool = False
    replica_known: bool = True
    braked: tuple[str, ...] = ()


@dataclass(frozen=True)
class Go:
    """Let it wait for its turn. What was begun before goes back into the line as it is: rules that came later do not
    undo what may already lie in the engine."""

    begun_before: bool = False


@dataclass(frozen=True)
class Nothing:
    """It ended and its outcome is out."""


Verdict = Go | Nothing | Ending


def admit(command: WarmupCommand, at: Circumstances) -> Verdict:
    """The verdict on a command for one replica, quota apart (see `executor.quota`), which costs something to ask."""
    if at.seen == "ended":
        return Nothing()
    if at.seen == "started":
        return Go(begun_before=True)
    if at.now_ms >= command.expires_at_ms:
        return Ending("expired", OutcomeReason.EXPIRED_ON_ARRIVAL)
    if at.cancelled:
        return Ending("cancelled", OutcomeReason.CANCELLED)
    if command.arm == "hold":
        return Ending("held_out", OutcomeReason.HELD_OUT)
    if command.shadow or at.shadow:
        return Ending("shadow", OutcomeReason.SHADOW)
    if at.frozen and held_by_freeze(command):
        return Ending("rejected", OutcomeReason.FROZEN, error="; ".join(at.frozen))
    if not supported(command):
        return Ending("rejected", OutcomeReason.UNSUPPORTED, error=f"{command.action} in pool {command.pool}")
    if not at.replica_known:
        return Ending("rejected", OutcomeReason.NO_REPLICA, error="no such replica in this pool's configuration")
    if at.braked:
        return braked(at.braked)
    return Go()


def held_by_freeze(command: WarmupCommand) -> bool:
    """Whether a freeze of its scope holds a command back: all but one that takes something out of a cache.

    A freeze is the brake for when warm-ups do harm; a bad or stale answer does harm for as long as it is served.
    """
    return command.action != "invalidate"


def held_by_breaker(command: WarmupCommand) -> bool:
    """Whether a replica's breaker holds a command back: what has an engine compute or load something ahead of need.

    What wakes or probes an engine, and what takes something out, does users no harm.
    """
    ahead = command.action in ("warm", "load", "pin") and not isinstance(command.target, Model)
    return ahead and not is_redis(command.pool)


def braked(reasons: tuple[str, ...]) -> Ending:
    """How a command ends that a breaker refuses."""
    return Ending("rejected", OutcomeReason.BREAKER_OPEN, error=", ".join(reasons))


def late(taken_over: bool) -> Ending:
    """How a command ends whose time passed while it waited for its turn.

    If somebody had begun it, it may well lie in the engine; nobody may ask any more, because asking would warm it.
    """
    if taken_over:
        return Ending(
            "failed", OutcomeReason.UNVERIFIED, error="its executor died, and it expired before another could look"
        )
    return Ending("expired", OutcomeReason.EXPIRED_QUEUED)


ON_ENGINES: Mapping[type[Target], frozenset[Action]] = {
    Prefix: frozenset({"warm"}),
    Adapter: frozenset({"load", "pin", "unload"}),
    Model: frozenset({"probe", "load", "wake"}),
    Response: frozenset({"warm"}),
}
IN_REDIS: Mapping[type[Target], frozenset[Action]] = {
    Embedding: frozenset({"warm"}),
    Response: frozenset({"warm", "invalidate"}),
    Value: frozenset({"warm"}),
}
"""What can be done with each kind of target, in pools of engines and in Redis pools. Engines generate answers."""


def supported(command: WarmupCommand) -> bool:
    """Whether this executor can do what the command asks."""
    able = IN_REDIS if is_redis(command.pool) else ON_ENGINES
    return command.action in able.get(type(command.target), frozenset())
