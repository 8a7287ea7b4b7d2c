"""The window of askers against a recount of its events, whichever way its panes came to be inside."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.asked_panes import AskedPanes
from analytics.crowd_window import CrowdWindow
from analytics.records import Section
from analytics.running_entropy import sums_of
from analytics.stores import MemoryMapStore
from tests.analytics.asking import Event, key, told

PANES = 5
PANE_MS = 10
Row = tuple[int, int, int]
"""Pane, key, user."""

events = st.tuples(st.integers(0, 12), st.integers(0, 4), st.integers(0, 3))
steps = st.lists(st.one_of(st.lists(events, min_size=1, max_size=6), st.integers(0, 14)), max_size=30)
"""A batch of events, or a slide to a pane, which may lie behind."""


class Held:
    """A window and the panes that it is fed from, as `ScopeFocus` does it."""

    def __init__(self) -> None:
        self.panes = AskedPanes(1_000, Section(MemoryMapStore(), "e"))
        self.window = CrowdWindow(PANES)
        self.taken: list[Row] = []
        self.first = self.last = -1

    def put(self, batch: list[Row]) -> None:
        rows = [row for row in batch if row[0] > self.last - PANES]
        made = [Event(p * PANE_MS, k, u, identity=1000 + len(self.taken) + i) for i, (p, k, u) in enumerate(rows)]
        for asked in told(made, PANE_MS):
            self.panes.add(asked)
            self.first = asked.pane if self.first < 0 else min(self.first, asked.pane)
        self.taken += rows

    def slide(self, last: int) -> None:
        self.last = last
        self.panes.forget(last - PANES + 1)
        self.window.slide(self.first, last)
        for pane in self.panes.inside(last - PANES + 1, last):
            version = self.panes.version(pane)
            if self.window.version(pane) != version:
                if self.window.version(pane):
                    self.window.leave(pane)
                self.window.enter(pane, version, self.panes.column("query", pane))


def seen(held: CrowdWindow, panes: int) -> dict[bytes, tuple[int, int, int, int]]:
    span = held.span(panes)
    columns = (span.askers.now, span.askers.before, span.events.now, span.events.before)
    rows = zip(span.keys.tolist(), *(column.tolist() for column in columns), strict=True)
    return {held.key(number): tuple(counts) for number, *counts in rows}


def recount(taken: list[Row], panes: int, last: int) -> dict[bytes, tuple[int, int, int, int]]:
    """Askers and events of each key of the span, in it and before it. User 0 is a user of its own each time."""
    inside = [event for event in taken if last - PANES < event[0] <= last]
    people = [(pane, k, user or -number) for number, (pane, k, user) in enumerate(inside, 1)]
    found = {}
    for k in {k for pane, k, _ in inside if pane > last - panes}:
        askers, asked = Counter(p > last - panes for p, q, _ in set(people) if q == k), Counter[bool]()
        asked.update(pane > last - panes for pane, q, _ in inside if q == k)
        found[key(k)] = (askers[True], askers[False], asked[True], asked[False])
    return found


@settings(max_examples=60, deadline=None)
@given(steps, st.integers(1, PANES))
def test_every_span_is_the_recount_of_its_events(done: list[list[Row] | int], panes: int) -> None:
    held = Held()
    for step in done:
        if isinstance(step, list):
            held.put(step)
            continue
        if step <= held.last:
            continue
        held.slide(step)
        assert seen(held.window, panes) == recount(held.taken, panes, step)
        inside = [event for event in held.taken if step - PANES < event[0] <= step]
        once = {(k, user or -number) for number, (_, k, user) in enumerate(inside, 1)}
        assert held.window.sums == sums_of(Counter(k for k, _ in once).values())
        assert held.window.distinct_keys() == len({k for _, k, _ in inside})
        assert held.window.events_in(panes) == sum(pane > step - panes for pane, _, _ in inside)
        anonymous = sum(not user for _, _, user in inside)
        assert held.window.anonymous_share == (pytest.approx(anonymous / len(inside)) if inside else 0)


def test_late_events_enter_their_pane_until_it_leaves() -> None:
    held = Held()
    held.put([(3, 1, 1)])
    held.slide(5)
    held.put([(3, 1, 1), (3, 1, 2)])
    held.slide(6)
    assert seen(held.window, 4) == {key(1): (2, 0, 3, 0)}
    held.slide(8)
    assert held.window.distinct_keys() == held.window.span(1).askers.all_now == held.window.sums.weight == 0


def test_a_full_pane_counts_what_it_drops() -> None:
    panes = AskedPanes(3, Section(MemoryMapStore(), "e"))
    for first, many in ((1, 3), (4, 2)):
        for asked in told([Event(10, 1, user, identity=user) for user in range(first, first + many)], PANE_MS):
            panes.add(asked)
    assert (panes.events([1]), panes.dropped([1])) == (3, 2)
    assert panes.column("query", 1).users.tolist() == [1, 2, 3]
