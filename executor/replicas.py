"""Which replicas a command is for. Pure, and the same after a restart: readiness plays no part in it."""

from __future__ import annotations

from collections.abc import Sequence

from schemas import Model, WarmupCommand
from schemas.canonical import h64


def replicas_for(command: WarmupCommand, configured: Sequence[str]) -> tuple[str, ...]:
    """The replica of a Model; of other targets those that the planner named, else `replicas.max` of the pool by
    rendezvous hashing of the target.

    A choice that depended on which replicas are ready could differ after a crash, and leave work that was begun on one
    replica without an outcome.

    Args:
        configured: names of the pool's replicas, at least one.
    """
    if isinstance(command.target, Model):
        return (command.target.replica,)
    wanted = command.replicas
    if wanted.names is not None:
        return tuple(dict.fromkeys(wanted.names)) or (command.pool,)
    ranked = sorted(configured, key=lambda replica: (-h64(command.target_key, replica), replica))
    return tuple(ranked[: max(1, wanted.max)])
