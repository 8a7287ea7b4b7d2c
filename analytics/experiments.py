"""The hold-out: which units are never warmed in their period, as one pure function of (unit, salt, period) (D17)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from analytics.policy import ExperimentPolicy
from schemas.canonical import Arm, arm


@dataclass(frozen=True)
class Assignment:
    """Arm of a unit, and the probability with which it got just this arm."""

    arm: Arm
    propensity: float


_DAY_MS = 86_400_000

ALWAYS = Assignment("warm", 1.0)
"""Of what is never held out."""


def period_of(at_ms: int) -> str:
    """The period of an event time: its day in UTC, e.g. `2026-11-30`. It turns the salt, and is never time-scaled."""
    return _date(at_ms // _DAY_MS)


@lru_cache(maxsize=4)
def _date(day: int) -> str:
    return datetime.fromtimestamp(day * _DAY_MS // 1000, tz=UTC).date().isoformat()


def assign(unit: str, at_ms: int, policy: ExperimentPolicy) -> Assignment:
    """The arm of a unit at an event time. Two jobs, and an analysis afterwards, find the same."""
    share = policy.hold_share
    found = arm(unit, policy.salt, period_of(at_ms), share)
    return Assignment(found, share if found == "hold" else 1.0 - share)
