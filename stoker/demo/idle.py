"""How much of the time a replica had no request at all: the room that warm-ups have without making anybody wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from stoker.demo.effect import Touch


@dataclass(frozen=True)
class Idle:
    """One replica, from the first request of the run to its last answer.

    Attributes:
        share: of that time in which it had no request; while it restarts it has none either.
        median_gap_ms: half of the gaps between its requests are shorter; None without a gap.
    """

    replica: str
    share: float
    median_gap_ms: float | None


def idle(touches: Sequence[Touch]) -> tuple[Idle, ...]:
    """Every replica that had requests, by name."""
    if not touches:
        return ()
    began_ms = float(min(touch.at_ms for touch in touches))
    ended_ms = max(touch.at_ms + touch.latency_ms for touch in touches)
    busy: dict[str, list[tuple[float, float]]] = {}
    for touch in touches:
        busy.setdefault(touch.replica, []).append((touch.at_ms, touch.at_ms + touch.latency_ms))
    found = []
    for replica, spans in sorted(busy.items()):
        gaps, free_ms = [], began_ms
        for start_ms, end_ms in [*sorted(spans), (ended_ms, ended_ms)]:
            if start_ms > free_ms:
                gaps.append(start_ms - free_ms)
            free_ms = max(free_ms, end_ms)
        share = sum(gaps) / (ended_ms - began_ms) if ended_ms > began_ms else 0.0
        found.append(Idle(replica, share, median(gaps) if gaps else None))
    return tuple(found)
