"""The window of askers against a recount of its events, in any order, with crashes anywhere."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.crowd_window import CrowdWindow, CrowdWindowConfig, Span
from analytics.records import Section
from analytics.running_entropy import sums_of
from analytics.stores import MemoryMapStore

PANES = 5
Event = tuple[int, int, int]
"""Pane, key, user."""

events = st.tuples(st.integers(0, 12), st.integers(0, 4), st.integers(0, 3))
steps = st.lists(st.one_of(st.lists(events, min_size=1, max_size=6), st.integers(0, 14)), max_size=30)
"""A batch of events, or a slide to a pane, which may lie behind."""


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def window(store: MemoryMapStore | None = None, **config: int) -> CrowdWindow:
    held = MemoryMapStore() if store is None else store
    found = CrowdWindow(CrowdWindowConfig(**{"panes": PANES, **config}), Section(held, "w"))
    for name, blob in held.items():
        found.restore(name.removeprefix("w"), blob)
    found.restored()
    return found


def put(held: CrowdWindow, batch: list[Event]) -> None:
    for pane in sorted({pane for pane, _, _ in batch}):
        own = [event for event in batch if event[0] == pane]
        held.add(pane, [key(k) for _, k, _ in own], [user for _, _, user in own], [pane * 10 for _ in own])


def seen(held: CrowdWindow, panes: int) -> dict[bytes, tuple[int, int, int, int]]:
    span = held.span(panes)
    columns = (span.askers.now, span.askers.before, span.events.now, span.events.before)
    rows = zip(span.keys.tolist(), *(column.tolist() for column in columns), strict=True)
    return {held.key(number): tuple(counts) for number, *counts in rows}


def recount(taken: list[Event], panes: int, last: int) -> dict[bytes, tuple[int, int, int, int]]:
    """Askers and events of each key of the span, in it and before it. User 0 is a user of its own each time."""
    inside = [event for event in taken if last - PANES < event[0] <= last]
    people = [(pane, k, user or -number) for number, (pane, k, user) in enumerate(inside, 1)]
    found = {}
    for k in {k for pane, k, _ in inside if pane > last - panes}:
        askers, asked = Counter(p > last - panes for p, q, _ in set(people) if q == k), Counter[bool]()
        asked.update(pane > last - panes for pane, q, _ in inside if q == k)
        found[key(k)] = (askers[True], askers[False], asked[True], asked[False])
    return found


def same(one: Span, other: Span) -> bool:
    return (one.before_panes, one.askers.all_now, one.askers.all_before, one.events.all_now, one.events.all_before) == (
        other.before_panes,
        other.askers.all_now,
        other.askers.all_before,
        other.events.all_now,
        other.events.all_before,
    )


@settings(max_examples=60, deadline=None)
@given(steps, st.integers(1, PANES))
def test_every_span_is_the_recount_of_its_events(done: list[list[Event] | int], panes: int) -> None:
    held, taken, last = window(), list[Event](), -1
    for step in done:
        if isinstance(step, list):
            put(held, step)
            taken += [event for event in step if event[0] > last - PANES]
            continue
        assert held.slide(step) is (step > last)
        if step <= last:
            continue
        last = step
        assert seen(held, panes) == recount(taken, panes, last)
        inside = [event for event in taken if last - PANES < event[0] <= last]
        once = {(k, user or -number) for number, (_, k, user) in enumerate(inside, 1)}
        assert held.sums == sums_of(Counter(k for k, _ in once).values())
        assert held.distinct_keys() == len({k for _, k, _ in inside})
        anonymous = sum(not user for _, _, user in inside)
        assert held.anonymous_share == (pytest.approx(anonymous / len(inside)) if inside else 0)


@settings(max_examples=40, deadline=None)
@given(steps, st.randoms(use_true_random=False))
def test_neither_crashes_nor_order_nor_batches_show(done: list[list[Event] | int], chance: random.Random) -> None:
    whole, store = window(), MemoryMapStore()
    other = window(store)
    for step in done:
        if isinstance(step, int):
            slid = whole.slide(step)
            assert other.slide(step) is slid
            if not slid:
                continue
            for panes in (1, 3):
                assert seen(whole, panes) == seen(other, panes)
                assert same(whole.span(panes), other.span(panes))
            assert whole.sums == other.sums
        else:
            put(whole, step)
            shuffled = chance.sample(step, len(step))
            cut = chance.randint(0, len(step))
            put(other, shuffled[:cut])
            put(other, shuffled[cut:])
        if chance.random() < 0.3:
            store = store.copy()
            other = window(store)


def test_what_left_the_window_leaves_no_record_behind() -> None:
    store = MemoryMapStore()
    held = window(store)
    for pane in range(200):
        put(held, [(pane, pane % 7, pane % 3 + 1), (pane + 2, 1, 1)])
        held.slide(pane)
    assert len(store.records) <= 2 * (PANES + 2) + 1
    held.slide(1_000)
    assert list(store.records) == ["ws"]
    assert held.distinct_keys() == held.span(1).askers.all_now == held.sums.weight == 0


def test_late_events_enter_their_pane_until_it_leaves() -> None:
    held = window()
    put(held, [(3, 1, 1)])
    held.slide(5)
    put(held, [(3, 1, 1), (3, 1, 2), (1, 1, 3), (0, 1, 4)])
    assert held.late == 1
    held.slide(6)
    assert seen(held, 4) == {key(1): (2, 0, 3, 0)}


def test_a_full_pane_counts_what_it_drops() -> None:
    held = window(max_pane_events=3)
    put(held, [(1, 1, user) for user in range(1, 6)])
    put(held, [(1, 2, 9)])
    held.slide(1)
    assert held.dropped == 3
    assert seen(held, 1) == {key(1): (3, 0, 3, 0)}
