"""The panes that a shard retains, and what spans them: identities of requests, and how often each query was counted."""

from __future__ import annotations

from analytics.panes import Pane, PaneCaps, Place
from analytics.second_sight import ScopeSight, SecondSight
from analytics.windows import PaneTimes

STARTED, FINISHED, BOTH = 1, 2, 3
"""Phases of a request that have been seen, as bits."""


class RetainedPanes:
    """Panes by index. An identity lives as long as the latest pane that holds it.

    Attributes:
        panes: the retained ones.
        seen: identity to pane · 4 + phases; the greatest value that any retained pane holds.
    """

    def __init__(self, times: PaneTimes, caps: PaneCaps, sights: SecondSight) -> None:
        self.panes: dict[int, Pane] = {}
        self.seen: dict[int, int] = {}
        self._times = times
        self._caps = caps
        self._sights = sights

    def count(
        self,
        index: int,
        phase: int,
        identity: int,
        place: Place,
        sight: ScopeSight,
        query: bytes,
        template: bytes,
        adapter: bytes,
        weight: int,
        user: int,
    ) -> None:
        """Counts a request whose identity no retained pane holds, or that a log says was counted."""
        pane = self.panes.get(index)
        if pane is None:
            pane = self.panes[index] = Pane(index)
        if pane.count(place, query, template, adapter, weight, user, self._caps):
            window = sight.window
            window[query] = window.get(query, 0) + 1
        pane.ids[phase - 1].append(identity)
        self._hold(identity, index << 2 | phase)

    def recognise(self, index: int, identity: int) -> None:
        """Notes the second phase of a request; `index` is the later pane of its two."""
        pane = self.panes.get(index)
        if pane is None:
            pane = self.panes[index] = Pane(index)
        pane.ids[BOTH - 1].append(identity)
        self._hold(identity, index << 2 | BOTH)

    def changed_before(self, at_ms: int) -> list[Pane]:
        """Panes that began before `at_ms` and have something to publish, in order."""
        return [
            pane for index, pane in sorted(self.panes.items()) if self._times.start_ms(index) < at_ms and pane.changed
        ]

    def mark_open(self, clock_ms: int) -> None:
        """After a restore: what had not begun by the last slide was not published by it."""
        for index, pane in self.panes.items():
            if self._times.start_ms(index) >= clock_ms:
                pane.mark(changed=True)

    def forget(self, at_ms: int) -> list[int]:
        """Drops the panes that left the window, and the identities that no later pane holds; returns which."""
        old = sorted(index for index in self.panes if self._times.forgotten(index, at_ms))
        for index in old:
            pane = self.panes.pop(index)
            for identity, _ in pane.identities():
                if self.seen.get(identity, -1) >> 2 == index:
                    del self.seen[identity]
            for (scope, _), counts in pane.places.items():
                window = self._sights.scope(scope).window
                for query, row in counts[0].rows.items():
                    left = window[query] - row.events
                    if left:
                        window[query] = left
                    else:
                        del window[query]
        return old

    def load(self, index: int, blob: bytes) -> None:
        """Takes a pane back from its blob."""
        pane = self.panes[index] = Pane.load(index, blob)
        for identity, phases in pane.identities():
            self._hold(identity, index << 2 | phases)
        for (scope, _), counts in pane.places.items():
            window = self._sights.scope(scope).window
            for query, row in counts[0].rows.items():
                window[query] = window.get(query, 0) + row.events

    def _hold(self, identity: int, value: int) -> None:
        if value > self.seen.get(identity, 0):
            self.seen[identity] = value
