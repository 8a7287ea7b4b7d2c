"""Outcomes: the one terminal record that a command has on a replica, built in one place."""

from __future__ import annotations

from dataclasses import dataclass

from schemas import OutcomeReason, WarmupCommand, WarmupOutcome
from schemas.canonical import outcome_id
from schemas.fields import MAX_STRING_CHARS
from schemas.warmup_outcome import Status

_DAY_MS = 86_400_000.0


@dataclass(frozen=True)
class Ending:
    """How a work ended, before it is stamped with ids and times.

    Attributes:
        tokens_warmed: tokens that the engine added for it.
        tokens_already_resident: tokens that it found.
        bytes: size of the cache entry written.
        error: one line for a person; no text of a prompt, no secret.
    """

    status: Status
    reason: OutcomeReason
    tokens_warmed: int = 0
    tokens_already_resident: int = 0
    bytes: int = 0
    error: str | None = None

    @property
    def present(self) -> bool:
        """Whether the target is there now, whoever made it so."""
        return self.status in ("applied", "resident")


def outcome_of(
    command: WarmupCommand, replica: str, ending: Ending, now_ms: int, queued_ms: float = 0.0, apply_ms: float = 0.0
) -> WarmupOutcome:
    """The outcome of a command on a replica.

    Args:
        queued_ms: from admission until it was taken.
        apply_ms: from there until the engine or Redis was done with it.
    """
    return WarmupOutcome(
        outcome_id=outcome_id(command.command_id, replica),
        command_id=command.command_id,
        target_key=command.target_key,
        action=command.action,
        scope=command.scope,
        pool=command.pool,
        replica=replica,
        unit=command.unit,
        arm=command.arm,
        status=ending.status,
        reason=ending.reason,
        finished_at_ms=now_ms,
        queued_ms=round(min(max(queued_ms, 0.0), _DAY_MS), 3),
        apply_ms=round(min(max(apply_ms, 0.0), _DAY_MS), 3),
        tokens_warmed=ending.tokens_warmed,
        tokens_already_resident=ending.tokens_already_resident,
        bytes=ending.bytes,
        error=None if ending.error is None else ending.error[:MAX_STRING_CHARS],
    )


def first_try(ending: Ending) -> Ending:
    """What an apply is called that was begun before by an executor that died.

    A second look at one's own work finds it resident; that is the first try's doing, so it is `applied`, with the
    tokens found as the evidence. `applied` is never replaced by `resident`.
    """
    if ending.status != "resident":
        return ending
    return Ending(
        "applied",
        OutcomeReason.DONE,
        tokens_warmed=ending.tokens_already_resident,
        bytes=ending.bytes,
        error="found resident when the first try's executor was gone",
    )
