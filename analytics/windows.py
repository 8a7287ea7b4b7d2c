"""The ring of panes (D1): where panes begin and end, what is late, and tumbling minutes and a sliding window over them.

`PaneTimes` is the arithmetic, shared with the demand shards. `WindowRing` is the whole thing in one object for a stream
that fits in one process, and the oracle of the tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from analytics.entropy import entropy_bits
from analytics.envelopes import KeyCount
from analytics.facts import MICRO
from analytics.panes import DIMENSIONS, CountedDimension, Counts, Pane, PaneCaps


@dataclass(frozen=True)
class PaneTimes:
    """When a pane begins, ends, closes to late events and is forgotten. All in milliseconds of event time.

    Attributes:
        pane_ms: length of a pane; pane i covers [i · pane_ms, (i + 1) · pane_ms).
        lateness_ms: how long after its end a pane still takes events.
        window_ms: how long a pane is kept after it is closed to late events.
    """

    pane_ms: int = 10_000
    lateness_ms: int = 30_000
    window_ms: int = 300_000

    def pane_of(self, at_ms: int) -> int:
        """Index of the pane of an event time."""
        return at_ms // self.pane_ms

    def start_ms(self, pane: int) -> int:
        """First millisecond of a pane."""
        return pane * self.pane_ms

    def end_ms(self, pane: int) -> int:
        """First millisecond after a pane."""
        return (pane + 1) * self.pane_ms

    def late(self, pane: int, now_ms: int) -> bool:
        """Whether an event for this pane comes too late when event time stands at `now_ms`."""
        return (pane + 1) * self.pane_ms + self.lateness_ms <= now_ms

    def forgotten(self, pane: int, now_ms: int) -> bool:
        """Whether a pane has left the window."""
        return (pane + 1) * self.pane_ms + self.lateness_ms + self.window_ms <= now_ms

    def slide_at_or_after(self, at_ms: int) -> int:
        """The first boundary of panes that is not before `at_ms`."""
        return -(-at_ms // self.pane_ms) * self.pane_ms


@dataclass(frozen=True)
class WindowConfig:
    """What a ring shows.

    Attributes:
        times: of the panes.
        minute_panes: panes of a tumbling window of the spec rules.
        minutes: tumbling windows that are kept.
        sliding_panes: panes of the sliding window of the tuned rules.
        top: heaviest keys that are shown.
        caps: bounds of a pane's memory.
    """

    times: PaneTimes = field(default_factory=PaneTimes)
    minute_panes: int = 6
    minutes: int = 5
    sliding_panes: int = 30
    top: int = 50
    caps: PaneCaps = field(default_factory=PaneCaps)


@dataclass(frozen=True)
class Window:
    """Totals of a span of event time. `users` counts distinct users per query, summed over queries."""

    start_ms: int
    end_ms: int
    events: int
    weight: float
    entropy_bits: float
    distinct: int
    users: int
    top: tuple[KeyCount, ...]
    capped: bool

    @property
    def qps(self) -> float:
        """Weighted requests per second."""
        return self.weight / ((self.end_ms - self.start_ms) / 1000)


class WindowRing:
    """Exact counts over the last minutes. Time is what the events and `advance` say, and never goes back."""

    def __init__(self, config: WindowConfig) -> None:
        self.config = config
        self.late = 0
        self._now_ms = 0
        self._panes: dict[int, Pane] = {}

    def add(
        self,
        at_ms: int,
        scope: str,
        query: bytes,
        user: int = 0,
        template: str = "",
        adapter: str = "",
        weight: float = 1,
    ) -> bool:
        """Counts one request; False, and counted as late, when its pane takes no more events.

        Args:
            query: 16 bytes.
            user: 64-bit hash of the user, 0 for nobody.
            weight: sample weight.
        """
        index = self.config.times.pane_of(at_ms)
        if self.config.times.late(index, self._now_ms):
            self.late += 1
            return False
        pane = self._panes.get(index)
        if pane is None:
            pane = self._panes[index] = Pane(index)
        micro = max(1, round(weight * MICRO))
        pane.count((scope, ""), query, template.encode(), adapter.encode(), micro, user, self.config.caps)
        return True

    def advance(self, now_ms: int) -> None:
        """Moves event time on and forgets panes that left the window. An earlier time changes nothing."""
        self._now_ms = max(self._now_ms, now_ms)
        for index in [index for index in self._panes if self.config.times.forgotten(index, self._now_ms)]:
            del self._panes[index]

    def minutes(self, scope: str, dimension: CountedDimension = "query") -> tuple[Window, ...]:
        """The last whole tumbling minutes that ended by now, oldest first; quiet ones are there, with no events."""
        panes = self.config.minute_panes
        last = self.config.times.pane_of(self._now_ms) // panes
        first = max(0, last - self.config.minutes)
        return tuple(
            self._window(scope, dimension, minute * panes, (minute + 1) * panes) for minute in range(first, last)
        )

    def sliding(self, scope: str, dimension: CountedDimension = "query") -> Window:
        """The sliding window that ended with the last whole pane."""
        last = self.config.times.pane_of(self._now_ms)
        return self._window(scope, dimension, max(0, last - self.config.sliding_panes), last)

    def _window(self, scope: str, dimension: CountedDimension, first: int, end: int) -> Window:
        total = Counts()
        position = DIMENSIONS.index(dimension)
        for counts in self._counts(scope, position, first, end):
            total.absorb(counts)
        sums = total.summary(dimension, self.config.top)
        return Window(
            start_ms=self.config.times.start_ms(first),
            end_ms=self.config.times.start_ms(end),
            events=sums.events,
            weight=sums.weight,
            entropy_bits=entropy_bits(sums.weight, sums.sum_clogc),
            distinct=sums.distinct,
            users=sums.users,
            top=sums.top,
            capped=total.capped,
        )

    def _counts(self, scope: str, position: int, first: int, end: int) -> Iterable[Counts]:
        for index in range(first, end):
            pane = self._panes.get(index)
            if pane is not None:
                for (owner, _), counts in pane.places.items():
                    if owner == scope:
                        yield counts[position]
