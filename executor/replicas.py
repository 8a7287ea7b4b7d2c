"""Which replicas a command is for, and how it ends where one of them has left. Pure; readiness plays no part in it."""

from __future__ import annotations

from collections.abc import Sequence

from executor.outcomes import Ending
from schemas import Model, OutcomeReason, WarmupCommand
from schemas.canonical import h64


def replicas_for(command: WarmupCommand, known: Sequence[str]) -> tuple[str, ...]:
    """The replica of a Model; of other targets those that the planner named, else `replicas.max` of the pool by
    rendezvous hashing of the target.

    A choice that depended on which replicas are ready could differ after a crash, and leave work that was begun on one
    replica without an outcome. Where replicas come and go by themselves it changes only with them, and by rendezvous
    hashing only for the targets of the replica that came or went.

    Args:
        known: names of the pool's replicas; where there is none the pool stands for the one that is missing.
    """
    if isinstance(command.target, Model):
        return (command.target.replica,)
    wanted = command.replicas
    if wanted.names is not None:
        return tuple(dict.fromkeys(wanted.names)) or (command.pool,)
    ranked = sorted(known, key=lambda replica: (-h64(command.target_key, replica), replica))
    return tuple(ranked[: max(1, wanted.max)]) or (command.pool,)


def departed(taken_over: bool) -> Ending:
    """How a command ends that waited for a replica which has left or drains.

    Args:
        taken_over: somebody had begun it there. Then it may well have been applied, and nobody can look any more.
    """
    if taken_over:
        why = "its executor died, and its replica left before another could look"
        return Ending("failed", OutcomeReason.UNVERIFIED, error=why)
    return Ending("rejected", OutcomeReason.NO_REPLICA, error="the replica has left, or drains")


def closed_by_departure() -> Ending:
    """How a command ends that ran when its replica left, or came back somewhere else."""
    return Ending("failed", OutcomeReason.ENGINE_UNAVAILABLE, error="the replica left while it ran")
