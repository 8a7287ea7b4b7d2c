"""A small cache over a host tier: bounds, budget, and that a warm-up comes ahead of a request that can be foreseen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.cache_models import EndlessCache, Run, size
from analytics.host_tier import HostTierConfig
from analytics.reuse_model import EDGES_MS, ReuseConfig, ReuseModel
from tests.analytics.test_retention import PARENT, Timed, timed_traffic


@settings(max_examples=30, deadline=None)
@given(timed_traffic())
def test_neither_tier_nor_budget_is_ever_exceeded(timed: Timed) -> None:
    cache = HostTierConfig(tick_ms=20_000).build(4, 6)
    for prompt, at_ms in timed:
        assert 0 <= cache.request(prompt, at_ms) <= size(prompt)
        assert 0 <= cache.held_blocks == sum(cache.held(name) for name in PARENT) <= 4
        assert cache.known_blocks <= max(10, max(run.blocks for run in prompt))
        assert cache.counts.moved <= cache.demanded_blocks
        assert cache.counts.useful <= cache.counts.moved


@settings(max_examples=30, deadline=None)
@given(timed_traffic())
def test_with_room_for_all_it_finds_what_was_there_before(timed: Timed) -> None:
    endless, cache = EndlessCache(), HostTierConfig(tick_ms=20_000).build(100, 100)
    expected = [endless.request(prompt) for prompt, _ in timed]
    assert [cache.request(prompt, at_ms) for prompt, at_ms in timed] == expected
    assert cache.counts.moved == 0


@settings(max_examples=25, deadline=None)
@given(timed_traffic(), st.integers(0, 30))
def test_a_snapshot_goes_on_as_the_cache_would_have(timed: Timed, cut: int) -> None:
    config = HostTierConfig(tick_ms=20_000, learn_ms=50_000)
    one, other = config.build(4, 6), config.build(4, 6)
    for prompt, at_ms in timed[:cut]:
        one.request(prompt, at_ms)
    other.restore(one.snapshot())
    for prompt, at_ms in timed[cut:]:
        assert other.request(prompt, at_ms) == one.request(prompt, at_ms)
    assert other.snapshot() == one.snapshot()


def play(budget_share: float) -> tuple[int, int, int]:
    """Forty clients that come back after a minute, more than fit; what comes in between is asked for once."""
    cache = HostTierConfig(tick_ms=1_000, learn_ms=5_000, budget_share=budget_share).build(40, 10_000)
    found = 0
    for second in range(600):
        found += cache.request([Run(f"client {second % 60}", 4)] if second % 60 < 40 else [], second * 1000.0)
        cache.request([Run(f"once {second}", 2)], second * 1000.0 + 500)
    return found, cache.counts.moved, cache.counts.useful


def test_what_comes_back_on_time_is_there_ahead_of_its_request() -> None:
    kept, moved_none, _ = play(0.0)
    found, moved, useful = play(1.0)
    assert moved_none == 0
    assert found > 1.5 * kept
    assert useful > 0.3 * moved > 0


def test_the_same_requests_give_the_same_finds() -> None:
    assert play(1.0) == play(1.0)


def test_a_rate_is_learned_against_its_prior() -> None:
    """One use by everybody, after a minute, then silence: young is worth waiting for, old is not."""
    model = ReuseModel(ReuseConfig())
    before = model.index(np.array([1, 1]), np.array([0.0, 600_000.0]))
    assert before[0] > before[1] > 0
    for _ in range(500):
        model.used(1, 60_000, 1)
    model.waited(np.ones(500, np.int64), np.full(500, 30_000.0), np.ones(500, np.int64), 60_000)
    model.waited(np.ones(500, np.int64), np.full(500, 600_000.0), np.ones(500, np.int64), 600_000)
    model.learn()
    at_50_s, at_600_s = model.index(np.array([1, 1]), np.array([50_000.0, 600_000.0]))
    assert at_50_s > 10 * at_600_s
    assert at_600_s < before[1]
    again = ReuseModel(ReuseConfig())
    again.restore(model.snapshot())
    ages_ms = EDGES_MS[:-1] + 1
    uses = np.full(len(ages_ms), 1)
    assert again.index(uses, ages_ms) == pytest.approx(model.index(uses, ages_ms))


def test_more_uses_are_worth_more_before_anything_is_learned() -> None:
    model = ReuseModel(ReuseConfig())
    uses = np.array([1, 2, 3, 5, 8, 16, 100])
    for age_ms in (0.0, 100_000.0, 2_000_000.0):
        worth = model.index(uses, np.full(len(uses), age_ms))
        assert (np.diff(worth) > 0).all()
