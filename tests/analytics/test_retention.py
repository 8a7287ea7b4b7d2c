"""Self-tuning retention: its bounds, its oracle without bounds, and the figures of a real trace."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.cache_models import EndlessCache, LruCache, Run, belady, size
from analytics.hot_cache import HotCache
from analytics.retention import RetentionConfig
from analytics.reuse_gaps import PER_OCTAVE, ReuseGaps
from stoker.replay.mooncake import read_trace

PARENT = {"a": None, "b": "a", "c": "b", "d": "b", "e": "a", "f": None}
Timed = list[tuple[list[Run], float]]


def path_to(name: str | None) -> list[str]:
    return [*path_to(PARENT[name]), name] if name is not None else []


@st.composite
def timed_traffic(draw: st.DrawFn) -> Timed:
    sizes = {name: draw(st.integers(1, 3)) for name in PARENT}
    ends = draw(st.lists(st.tuples(st.sampled_from(sorted(PARENT)), st.integers(0, 200_000)), min_size=1, max_size=30))
    at_ms, timed = 0.0, []
    for end, gap_ms in ends:
        at_ms += gap_ms
        timed.append(([Run(step, sizes[step]) for step in path_to(end)], at_ms))
    return timed


@settings(max_examples=50, deadline=None)
@given(timed_traffic(), st.integers(1, 12), st.integers(0, 4))
def test_neither_capacity_nor_ghosts_are_ever_exceeded(timed: Timed, capacity: int, max_ghosts: int) -> None:
    cache = HotCache(capacity, 60_000, max_ghosts)
    for prompt, at_ms in timed:
        assert 0 <= cache.request(prompt, at_ms) <= size(prompt)
        held = sum(min(cache.held(name), 3) for name in PARENT)
        assert held == cache.held_blocks <= capacity
        assert cache.ghosts <= max_ghosts


@settings(max_examples=50, deadline=None)
@given(timed_traffic())
def test_with_room_for_all_it_finds_what_was_there_before(timed: Timed) -> None:
    endless, cache = EndlessCache(), RetentionConfig().build(1000)
    expected = [endless.request(prompt) for prompt, _ in timed]
    assert [cache.request(prompt, at_ms) for prompt, at_ms in timed] == expected


@settings(max_examples=50, deadline=None)
@given(timed_traffic(), st.integers(1, 12))
def test_it_never_finds_more_than_the_future_would(timed: Timed, capacity: int) -> None:
    cache = RetentionConfig().build(capacity)
    found = sum(cache.request(prompt, at_ms) for prompt, at_ms in timed)
    assert found <= sum(belady([prompt for prompt, _ in timed], capacity))


@settings(max_examples=50, deadline=None)
@given(timed_traffic(), st.integers(1, 12), st.integers(0, 30))
def test_a_snapshot_goes_on_as_the_cache_would_have(timed: Timed, capacity: int, cut: int) -> None:
    one = HotCache(capacity, 60_000, 3)
    for prompt, at_ms in timed[:cut]:
        one.request(prompt, at_ms)
    other = HotCache(capacity, 1_000, 3)
    other.restore(one.snapshot())
    for prompt, at_ms in timed[cut:]:
        assert other.request(prompt, at_ms) == one.request(prompt, at_ms)
    assert other.snapshot() == one.snapshot()


@settings(max_examples=30, deadline=None)
@given(timed_traffic(), st.integers(1, 12), st.integers(0, 30))
def test_a_self_tuning_pool_goes_on_from_its_snapshot(timed: Timed, capacity: int, cut: int) -> None:
    config = RetentionConfig(sampled=2, tolerance=0.0)
    one, other = config.build(capacity), config.build(capacity)
    for prompt, at_ms in timed[:cut]:
        one.request(prompt, at_ms)
    other.restore(one.snapshot())
    for prompt, at_ms in timed[cut:]:
        assert other.request(prompt, at_ms) == one.request(prompt, at_ms)
    assert other.snapshot() == one.snapshot()


def test_what_was_asked_for_often_outlives_a_scan_and_comes_back_as_hot() -> None:
    cache = HotCache(4, 60_000, 100)
    hot = [Run("hot", 4)]
    for at_ms in (0, 1000, 2000):
        cache.request(hot, at_ms)
    cache.request([Run("once", 4)], 3000)
    assert cache.held("hot") == 4
    cache.request([Run("new", 4)], 400_000)
    assert (cache.held("hot"), cache.held("new")) == (0, 4)
    # The ghost of `hot` has a history that `new` lacks.
    cache.request(hot, 401_000)
    cache.request([Run("other", 4)], 401_500)
    assert cache.held("hot") == 4


def test_another_half_life_keeps_what_uses_are_worth_now() -> None:
    cache = HotCache(2, 1_000, 10)
    cache.request([Run("a", 1)], 0)
    cache.request([Run("b", 1)], 1_000)
    cache.retune(1_000_000, 1_000)
    # Half of the use of `a` is left, and from now on nearly nothing fades.
    cache.request([Run("a", 1)], 2_000)
    cache.request([Run("c", 1)], 2_001)
    assert (cache.held("a"), cache.held("b"), cache.held("c")) == (1, 0, 1)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(100, 10_000_000), min_size=60, max_size=90))
def test_the_median_gap_is_known_to_a_bucket(gaps_ms: list[float]) -> None:
    gaps = ReuseGaps(120_000)
    for gap_ms in gaps_ms:
        gaps.add(gap_ms, 500.0)
    middle = sorted(gaps_ms)[len(gaps_ms) // 2]
    below = sorted(gaps_ms)[(len(gaps_ms) - 1) // 2]
    assert below * 2 ** (-2 / PER_OCTAVE) <= gaps.median_ms() <= middle * 2 ** (2 / PER_OCTAVE)
    again = ReuseGaps(1000)
    again.restore(gaps.snapshot())
    assert again.median_ms() == gaps.median_ms()


def test_before_anything_is_known_the_prior_speaks() -> None:
    gaps = ReuseGaps(120_000)
    assert math.isclose(gaps.median_ms(), 120_000, rel_tol=0.1)
    gaps.add(10.0)
    gaps.add(0.0)
    assert math.isclose(gaps.median_ms(), 120_000, rel_tol=0.1)


def test_the_half_life_follows_the_traffic() -> None:
    """Every prompt comes back after ten seconds: two to three times that, from 300 s down."""
    cache = RetentionConfig().build(1000)
    for step in range(3000):
        cache.request([Run("trunk", 1), Run(step % 100, 1)], step * 100.0)
    assert cache.factor in (2.0, 2.5, 3.0)
    # The trunk is in every request: half of the gaps are ten seconds and half a tenth of one.
    assert 100 < cache.half_life_ms < 3 * 12_000


def test_the_first_minutes_of_a_real_trace_are_better_kept_than_by_lru(data_dir: Path) -> None:
    lines = read_trace(data_dir / "traces" / "mooncake_conversation_trace.jsonl.gz")[:1500]
    lru, cache = LruCache(1000), RetentionConfig().build(1000)
    found = kept = 0
    for line in lines:
        prompt = [Run(block, 1) for block in line.hash_ids]
        found += lru.request(prompt)
        kept += cache.request(prompt, line.timestamp)
    assert kept > 1.2 * found


@pytest.mark.parametrize("sampled", [1, 4])
def test_the_same_requests_give_the_same_finds(sampled: int) -> None:
    def play() -> list[int]:
        cache = RetentionConfig(sampled=sampled, retune_ms=1000).build(20)
        return [cache.request([Run("t", 1), Run(n * n % 37, 2)], n * 500.0) for n in range(400)]

    assert play() == play()
