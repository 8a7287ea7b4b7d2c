"""Whether a crowd has gathered in one scope: the tuned rule of D2 over each dimension, once a slide.

Requests come from the demand shards, a message a shard and slide, and are kept for the length of the window. Windows
are derived from them. Most scopes are quiet: they have no windows and no slides, only what they were asked for. A
dimension in which everything has the same name has none either, nor have prefix families of which none can have risen.

Everything is in the store before a call returns. Sections: b baselines, e requests, p the trunk, t where it stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from analytics.asked import Asked
from analytics.asked_families import AskedFamilies
from analytics.asked_panes import ASKED_DIMENSIONS, AskedDimension, AskedPanes
from analytics.crowd_config import CrowdConfig
from analytics.crowd_finding import Finding
from analytics.crowd_rule import CrowdRule
from analytics.crowd_window import CrowdWindow
from analytics.envelopes import Tag, seal
from analytics.focused import Focused
from analytics.pools import envelope_key
from analytics.records import Record, Section, pack, unpack
from analytics.stores import MapStore
from schemas import encode


@dataclass(frozen=True)
class FocusConfig:
    """Settings of the focus operator.

    Attributes:
        crowd: of the rule; its panes are those of demand, scaled.
        redis_pool: whose planner hears of crowds on queries; empty: that of each pool that the scope asks.
        held_panes: for how long a crowd stands for its keys, after the slide that found it.
    """

    crowd: CrowdConfig = field(default_factory=CrowdConfig)
    redis_pool: str = ""
    held_panes: int = 6


class StandRecord(Record, frozen=True, array_like=True):
    """The first pane with requests since a scope was blank, the last one that was judged, and the next slide."""

    scope: str = ""
    first: int = -1
    last: int = -1
    next_timer_ms: int | None = None


class ScopeFocus:
    """The crowds of one scope.

    Args:
        store: rebuilt from, and written: a record a message, a small one a slide and dimension.
    """

    def __init__(self, config: FocusConfig, store: MapStore) -> None:
        self._config = config
        self._store = store
        self._stand = StandRecord(1)
        self._asked = AskedPanes(config.crowd.max_pane_events, Section(store, "e"))
        self._families = AskedFamilies(config.crowd, self._asked, Section(store, "p"))
        self._rules = {name: CrowdRule(config.crowd, name, Section(store, "b")) for name in ASKED_DIMENSIONS}
        self._windows: dict[AskedDimension, CrowdWindow] = {}
        for key, blob in store.items():
            if key[0] == "e":
                self._asked.restore(blob)
            elif key[0] == "p":
                self._families.restore(blob)
            elif key[0] == "b":
                self._rules[key[1:]].restore(blob)  # type: ignore[index]  # the names that were written
            else:
                self._stand = unpack(blob, StandRecord)

    @property
    def next_timer_ms(self) -> int | None:
        """Event time of the slide to be woken at; None while nothing is held."""
        return self._stand.next_timer_ms

    @property
    def blank(self) -> bool:
        """Whether it holds nothing: a new one over the same store is the same, so this one need not be kept."""
        return self._stand.next_timer_ms is None

    def on_asked(self, asked: Asked) -> None:
        """Takes what one shard counted in one slide; a pane that has left the window takes nothing more."""
        stand = self._stand
        if stand.last >= 0 and asked.pane <= stand.last - self._config.crowd.panes:
            return
        self._asked.add(asked)
        due_ms = max(asked.at_ms, self._end_ms(stand.last + 1))
        first = asked.pane if stand.first < 0 else min(asked.pane, stand.first)
        if stand.next_timer_ms is not None:
            due_ms = min(due_ms, stand.next_timer_ms)
        self._stands(StandRecord(1, asked.scope, first, stand.last, due_ms))

    def on_timer(self, at_ms: int) -> list[bytes]:
        """A slide: judges every dimension.

        Returns:
            a Focus insight for everything that gathered, and FOCUSED envelopes of the crowds among it. A timer that is
            no longer wanted does nothing.
        """
        if self._stand.next_timer_ms is None or at_ms < self._stand.next_timer_ms:
            return []
        scope, pane = self._stand.scope, at_ms // self._config.crowd.pane_ms - 1
        out: list[bytes] = []
        for dimension, finding in self.slide(pane):
            panes = self._asked.inside(pane - self._config.crowd.panes + 1, pane)
            insight = finding.insight(scope, dimension, self._asked.dropped(panes))
            out.append(seal(Tag.INSIGHT, envelope_key(scope), encode(insight)))
            if finding.triggers:
                until_ms = finding.at_ms + self._config.held_panes * self._config.crowd.pane_ms
                told = Focused(
                    scope, dimension, finding.at_ms, until_ms, finding.names(dimension), dict(insight.evidence)
                )
                single = self._config.redis_pool if dimension == "query" else ""
                out += [seal(Tag.FOCUSED, pool, told) for pool in ((single,) if single else self._asked.pools(panes))]
        return out

    def slide(self, pane: int) -> list[tuple[AskedDimension, Finding]]:
        """Moves the window's end to the end of a pane, and judges what it holds."""
        crowd, stand = self._config.crowd, self._stand
        self._asked.forget(pane - crowd.panes + 1)
        if not self._asked:
            self._forget()
            return []
        inside = self._asked.inside(pane - crowd.panes + 1, pane)
        loud = self._asked.events(inside) >= crowd.quiet_events
        found = self._judge(inside, pane) if loud else []
        if not loud:
            self._windows.clear()
        # A quiet scope sleeps until the next pane with requests, or until all that it holds has left.
        later = self._asked.after(pane)
        again = pane + 1 if loud else self._asked.newest + crowd.panes if later is None else later
        self._stands(StandRecord(1, stand.scope, stand.first, pane, self._end_ms(again)))
        return found

    def _judge(self, inside: list[int], last: int) -> list[tuple[AskedDimension, Finding]]:
        found = []
        for dimension in ASKED_DIMENSIONS:
            if not self._has_window(dimension, inside, last):
                self._windows.pop(dimension, None)
                continue
            window = self._windows.get(dimension)
            if window is None:
                window = self._windows[dimension] = CrowdWindow(self._config.crowd.panes)
            window.slide(self._stand.first, last)
            for pane in inside:
                version = self._asked.version(pane)
                if window.version(pane) != version:
                    if window.version(pane):
                        window.leave(pane)
                    families = dimension == "prefix_family"
                    column = self._families.column(pane) if families else self._asked.column(dimension, pane)
                    window.enter(pane, version, column)
            finding = self._rules[dimension].judge(window)
            if finding is not None:
                found.append((dimension, finding))
        return found

    def _has_window(self, dimension: AskedDimension, inside: list[int], last: int) -> bool:
        """Whether requests have several keys, and of families whether one can have risen."""
        if dimension != "prefix_family":
            return self._asked.several(dimension, inside)
        trunk = self._families.trunk
        if not self._families.slide(inside):
            return False
        if self._families.trunk != trunk:
            self._windows.pop(dimension, None)
        if self._families.rise(self._stand.first, last):
            return True
        self._rules[dimension].pass_by()
        return False

    def _end_ms(self, pane: int) -> int:
        return (pane + 1) * self._config.crowd.pane_ms

    def _forget(self) -> None:
        """Nothing is left: stands where a new one would."""
        for rule in self._rules.values():
            rule.forget()
        self._families.forget()
        self._windows.clear()
        self._stand = StandRecord(1)
        self._store.remove("t")

    def _stands(self, stand: StandRecord) -> None:
        if stand != self._stand:
            self._stand = stand
            self._store.put("t", pack(stand))
