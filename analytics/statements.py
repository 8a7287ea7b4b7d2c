"""What an outcome or a statement of residency says of a target: served, refused, lost, and what it cost."""

from __future__ import annotations

from typing import NamedTuple

from schemas.residency import Residency
from schemas.warmup_outcome import OutcomeReason, WarmupOutcome

LASTING = frozenset(
    {
        OutcomeReason.BELOW_BLOCK,
        OutcomeReason.UNSUPPORTED,
        OutcomeReason.ENGINE_REFUSED,
        OutcomeReason.SALT_MISMATCH,
    }
)
"""Reasons of a refusal that the next attempt would meet again: the replica counts as served for a residency's time."""

NO_ADAPTER = frozenset(
    {
        OutcomeReason.ADAPTER_MISSING,
        OutcomeReason.DIGEST_MISMATCH,
        OutcomeReason.RANK_MISMATCH,
        OutcomeReason.STRUCTURE_MISMATCH,
    }
)
NO_TEXT = frozenset({OutcomeReason.TEXT_WITHHELD, OutcomeReason.CONTENT_MISSING, OutcomeReason.CONTENT_MISMATCH})
NO_ANSWER = frozenset(
    {
        OutcomeReason.ANSWER_MISSING,
        OutcomeReason.ANSWER_INCOMPLETE,
        OutcomeReason.BELOW_REWARD_FLOOR,
        OutcomeReason.INDEX_MISMATCH,
    }
)
NO_VALUE = frozenset({OutcomeReason.VALUE_MISSING, OutcomeReason.LOADER_UNKNOWN, OutcomeReason.LOADER_FAILED})
NO_CONTENT = NO_TEXT | NO_ADAPTER | NO_ANSWER | NO_VALUE
"""Reasons of a refusal that every replica would give, and again until somebody stores or sets right what is needed: the
target rests for a residency's time, and twice as long after each further such outcome, up to a bound. `vector_missing`
is not among them: the query's next sight stores its vector again."""

NOTHING_SPENT = NO_ADAPTER | {OutcomeReason.ENGINE_REFUSED, OutcomeReason.STORE_UNAVAILABLE}
"""Reasons of a failure that came before any prefill."""

TAKEN_AWAY = frozenset({"unload", "invalidate"})
"""Actions after which a target is not there."""


class Verdict(NamedTuple):
    """What an outcome means for its target.

    Attributes:
        absent: it was asked to go and had not been there.
        served: the command did what it was for.
        refused: the replica would refuse the next attempt too.
        contentless: every replica would, until somebody stores what is needed.
    """

    absent: bool
    served: bool
    refused: bool
    contentless: bool


def verdict_of(outcome: WarmupOutcome) -> Verdict:
    """What an outcome means for its target."""
    absent = outcome.reason is OutcomeReason.ALREADY_ABSENT
    turned_away = outcome.status in ("skipped", "rejected", "failed")
    return Verdict(
        absent,
        absent or outcome.status in ("applied", "resident", "held_out", "shadow"),
        turned_away and outcome.reason in LASTING,
        turned_away and outcome.reason in NO_CONTENT,
    )


def unused_of(outcome: WarmupOutcome, charged: float) -> float:
    """What an outcome leaves of its charge: nothing where it does not tell what it spent, and may have spent all.

    An engine without usage details does not tell, nor does one that did not answer or was interrupted while it worked.
    """
    untold = (
        outcome.status == "applied"
        or (outcome.status == "failed" and outcome.reason not in NOTHING_SPENT)
        or (outcome.status == "cancelled" and outcome.apply_ms > 0)
    )
    return 0.0 if untold and not outcome.tokens_warmed else max(0.0, charged - outcome.tokens_warmed)


def kept_share(message: Residency) -> float:
    """How much of a target a replica still holds, 0 to 1; 1 where the statement names no amount."""
    if message.deleted or message.resident_tokens == 0 or message.bytes == 0:
        return 0.0
    if message.resident_tokens is None or not message.full_tokens:
        return 1.0
    return min(1.0, message.resident_tokens / message.full_tokens)


def stays_until(message: Residency, lost_share: float, stay_ms: int, held_until_ms: int) -> int:
    """Until when a target is taken as resident after a statement, in event time; 0 where it is lost.

    Args:
        lost_share: from which part on that has gone all is.
        stay_ms: how long what is there stays.
        held_until_ms: what was believed before; 0 where nothing was.
    """
    kept = kept_share(message)
    if kept < 1 - lost_share:
        return 0
    until_ms = message.observed_at_ms + stay_ms
    # What has begun to go is not promised longer than it was.
    return min(until_ms, held_until_ms) if kept < 1 and held_until_ms else until_ms
