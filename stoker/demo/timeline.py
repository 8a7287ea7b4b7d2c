"""A run cut into short spans, for pictures: how long requests waited for their first token, and what was cached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stoker.demo.effect import Groups, Issued, Shadowed, grouped

SPANS = 24


@dataclass(frozen=True)
class Span:
    """A part of a run.

    Attributes:
        from_s, until_s: from the start.
        groups: its touches.
        commands: prefix commands that were issued in it.
    """

    from_s: float
    until_s: float
    groups: Groups
    commands: int


def timeline(touches: Sequence[Shadowed], commands: Sequence[Issued]) -> tuple[Span, ...]:
    """Equal spans from the first request to the last; none without requests."""
    if not touches:
        return ()
    first, last = touches[0].touch.at_ms, touches[-1].touch.at_ms
    width_ms = (last - first) / SPANS + 1
    spans = []
    for number in range(SPANS):
        low, high = first + number * width_ms, first + (number + 1) * width_ms
        groups = grouped([seen for seen in touches if low <= seen.touch.at_ms < high], commands)
        issued = sum(low <= command.at_ms < high for command in commands)
        spans.append(Span((low - first) / 1000, (high - first) / 1000, groups, issued))
    return tuple(spans)
