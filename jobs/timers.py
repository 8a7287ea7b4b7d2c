"""Event-time timers of a keyed operator: a decision object says when it wants to be woken, Flink wakes it."""

from __future__ import annotations

from typing import Any


class Alarms:
    """The one timer that each key waits for. A cache: Flink keeps timers, a decision its own due time.

    A timer that the decision has since moved is not deleted in Flink; `due` tells it apart when it fires.
    """

    def __init__(self) -> None:
        self._set: dict[Any, int] = {}

    def arm(self, key: Any, due_ms: int | None, timers: Any, later_ms: int = 0) -> None:
        """Registers the key's next timer unless it is the one that waits already.

        Args:
            key: the current key.
            due_ms: event time, or None when nothing is to come.
            timers: Flink's TimerService.
            later_ms: how much after its due time the timer fires: shards end a slide one after the other, and who waits
                for all of them waits for the last.
        """
        if self._set.get(key) == due_ms:
            return
        if due_ms is None:
            del self._set[key]
        else:
            timers.register_event_time_timer(due_ms + later_ms)
            self._set[key] = due_ms

    @staticmethod
    def due(at_ms: int, due_ms: int | None) -> bool:
        """Whether a timer that fires at `at_ms` is still wanted by a decision that waits for `due_ms`."""
        return due_ms is not None and at_ms >= due_ms


def event_time_ms(timers: Any) -> int:
    """The current watermark; 0 before the first one, where Flink has the smallest long."""
    return max(0, int(timers.current_watermark()))
