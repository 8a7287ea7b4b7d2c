"""A tick of a planner."""

from __future__ import annotations

from dataclasses import dataclass

from analytics.policy import PolicyBook
from analytics.replicas import Ready


@dataclass(frozen=True)
class Tick:
    """One look at everything.

    Attributes:
        behind: whether event time lags so far that nothing is issued.
        report: whether a slide has ended, so that the planner says where it stands.
    """

    at_ms: int
    wall_ms: int
    ready: Ready
    behind: bool
    report: bool
    policy: PolicyBook
