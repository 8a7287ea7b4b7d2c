"""Minutes and the sliding window against a recount of the events."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.windows import PaneTimes, WindowConfig, WindowRing
from tests.analytics.shard_script import query

START_MS = 1_700_000_040_000
assert START_MS % 60_000 == 0


def bits(held: Counter[int]) -> float:
    total = sum(held.values())
    return -sum(c / total * math.log2(c / total) for c in held.values()) if total else 0.0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 420_000), st.integers(0, 6), st.integers(0, 3)), max_size=80))
def test_every_span_is_the_recount_of_its_events(events: list[tuple[int, int, int]]) -> None:
    ring = WindowRing(WindowConfig())
    for offset, asked, user in events:
        assert ring.add(START_MS + offset, "a", query(f"q{asked}"), user)
    ring.advance(START_MS + 420_000)
    minutes = ring.minutes("a")
    assert [minute.start_ms - START_MS for minute in minutes] == [120_000 + 60_000 * i for i in range(5)]
    for window in (*minutes, ring.sliding("a")):
        inside = [e for e in events if window.start_ms <= START_MS + e[0] < window.end_ms]
        held = Counter(asked for _, asked, _ in inside)
        assert (window.events, window.weight, window.distinct) == (len(inside), len(inside), len(held))
        assert window.users == len({(asked, user) for _, asked, user in inside if user})
        assert window.entropy_bits == pytest.approx(bits(held), abs=1e-9)
        assert {top.key: top.count for top in window.top} == {query(f"q{k}").hex(): c for k, c in held.items()}
    assert ring.sliding("a").end_ms - ring.sliding("a").start_ms == 300_000
    assert ring.sliding("b").events == 0


def test_late_events_enter_for_thirty_seconds_and_are_counted_afterwards() -> None:
    ring = WindowRing(WindowConfig())
    ring.advance(START_MS + 39_999)
    assert ring.add(START_MS, "a", query("q"))
    ring.advance(START_MS + 40_000)
    assert not ring.add(START_MS + 9_999, "a", query("q"))
    assert ring.add(START_MS + 10_000, "a", query("q"))
    assert ring.late == 1
    ring.advance(0)
    assert not ring.add(START_MS, "a", query("q"))


def test_other_dimensions_count_what_names_them() -> None:
    ring = WindowRing(WindowConfig(minute_panes=1))
    ring.add(START_MS, "a", query("q"), template="t", weight=2.5)
    ring.add(START_MS, "a", query("r"), adapter="x")
    ring.advance(START_MS + 10_000)
    last = {name: ring.minutes("a", name)[-1] for name in ("query", "template", "adapter")}
    assert {name: [(top.key, top.count) for top in window.top] for name, window in last.items()} == {
        "query": [(query("q").hex(), 2), (query("r").hex(), 1)],
        "template": [("t", 2)],
        "adapter": [("x", 1)],
    }
    assert last["query"].qps == pytest.approx(0.35)


def test_old_panes_leave_the_ring() -> None:
    ring = WindowRing(WindowConfig())
    for minute in range(60):
        ring.advance(START_MS + 60_000 * minute)
        ring.add(START_MS + 60_000 * minute, "a", query("q"))
    assert sum(minute.events for minute in ring.minutes("a")) == 5
    assert ring.sliding("a").events == 5


@given(st.integers(1, 100_000), st.integers(0, 2**42))
def test_times_of_panes_agree_with_each_other(pane_ms: int, at_ms: int) -> None:
    times = PaneTimes(pane_ms, lateness_ms=3 * pane_ms, window_ms=5 * pane_ms)
    pane = times.pane_of(at_ms)
    assert times.start_ms(pane) <= at_ms < times.end_ms(pane) == times.start_ms(pane + 1)
    closes = times.end_ms(pane) + 3 * pane_ms
    assert (times.late(pane, closes - 1), times.late(pane, closes)) == (False, True)
    gone = closes + 5 * pane_ms
    assert (times.forgotten(pane, gone - 1), times.forgotten(pane, gone)) == (False, True)
    slide = times.slide_at_or_after(at_ms)
    assert slide % pane_ms == 0
    assert 0 <= slide - at_ms < pane_ms
