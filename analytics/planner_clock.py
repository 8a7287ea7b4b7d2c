"""Where a planner stands: its next tick, the minute that it judged last, what it has issued since its last report."""

from __future__ import annotations

from analytics.plan_config import PlanConfig
from analytics.records import Record, Section, pack, unpack


class PlannerRecord(Record, frozen=True, array_like=True):
    """Where a planner stands.

    Attributes:
        judged: the last minute that was judged; -1 before the first.
        ticked_ms: the last tick; no command is older. reported_ms: the last slide's report.
        issued: commands of both arms since then.
    """

    next_timer_ms: int | None
    judged: int
    ticked_ms: int
    reported_ms: int
    issued: int


class PlannerClock:
    """The event time of one planner.

    Args:
        store: of one record, which `write` renews.

    Attributes:
        next_timer_ms: the next tick; None while there is nothing to plan.
        judged: the last minute that was judged; -1 before the first.
        issued: commands of both arms since the last report.
    """

    def __init__(self, config: PlanConfig, store: Section) -> None:
        self._config = config
        self._store = store
        self.next_timer_ms: int | None = None
        self.judged = -1
        self.issued = 0
        self._ticked_ms = 0
        self._reported_ms = 0

    def arm(self, watermark_ms: int, event_ms: int) -> None:
        """There is something to plan: a tick follows, if none is due already."""
        if self.next_timer_ms is None:
            self.next_timer_ms = self._tick_after(watermark_ms or event_ms)
            self.write()

    def not_before_tick(self, event_ms: int) -> int:
        """When something is commanded that was heard of at a time: no command is older than the last tick."""
        return max(event_ms, self._ticked_ms)

    def report_due(self, at_ms: int) -> bool:
        """Whether a slide has ended since the last report."""
        pane_ms, settle_ms = self._config.scaled_pane_ms, self._config.scaled_settle_ms
        return (at_ms - settle_ms) // pane_ms > (self._reported_ms - settle_ms) // pane_ms

    def reported(self, at_ms: int) -> int:
        """A report is made; returns how many commands it tells of."""
        issued, self.issued = self.issued, 0
        self._reported_ms = at_ms
        return issued

    def ticked(self, at_ms: int, busy: bool) -> None:
        """A tick is over; another one follows while there is something to plan."""
        self._ticked_ms = at_ms
        self.next_timer_ms = self._tick_after(at_ms) if busy else None

    def write(self) -> None:
        """Keeps where it stands."""
        record = PlannerRecord(1, self.next_timer_ms, self.judged, self._ticked_ms, self._reported_ms, self.issued)
        self._store.put("", pack(record))

    def clear(self) -> None:
        """Stands where a new one would, and leaves nothing behind. No tick may be due."""
        self.judged, self.issued = -1, 0
        self._ticked_ms = self._reported_ms = 0
        self._store.remove("")

    def restore(self, blob: bytes) -> None:
        """Takes its record back."""
        record = unpack(blob, PlannerRecord)
        self.next_timer_ms, self.judged, self.issued = record.next_timer_ms, record.judged, record.issued
        self._ticked_ms, self._reported_ms = record.ticked_ms, record.reported_ms

    def _tick_after(self, at_ms: int) -> int:
        tick_ms = self._config.scaled_tick_ms
        return (at_ms // tick_ms + 1) * tick_ms
