"""One `time_scale` shortens every duration of event time together (DESIGN §3.4): a demo's minute may last 6 s."""

from __future__ import annotations


def scaled(duration_ms: float, time_scale: float) -> int:
    """A duration of unscaled event time as it passes under a time scale, in whole milliseconds, at least one."""
    return max(1, round(duration_ms / time_scale))
