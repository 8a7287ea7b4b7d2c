"""Entropy from sums against scipy, whole, merged and running."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.entropy import EntropySums, RunningEntropy, clogc, entropy_bits, merged

scipy_stats = pytest.importorskip("scipy.stats")

counts = st.lists(st.integers(1, 10**6) | st.floats(1e-3, 1e6), min_size=1, max_size=60)


@given(counts)
def test_sums_give_the_entropy_of_scipy(held: list[float]) -> None:
    assert EntropySums.of(held).entropy_bits == pytest.approx(scipy_stats.entropy(held, base=2), abs=1e-9)


@given(st.lists(counts, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_parts_that_share_no_key_merge_exactly_in_any_order(parts: list[list[float]], order: random.Random) -> None:
    sums = [EntropySums.of(part) for part in parts]
    whole = merged(sums)
    order.shuffle(sums)
    assert merged(sums) == whole
    flat = [count for part in parts for count in part]
    assert whole.distinct == len(flat)
    assert whole.entropy_bits == pytest.approx(scipy_stats.entropy(flat, base=2), abs=1e-9)


def test_a_sliding_window_keeps_its_entropy_over_many_changes() -> None:
    rng = random.Random(7)
    stream = [min(int(rng.paretovariate(0.8)), 5_000) for _ in range(30_000)]
    running, window = RunningEntropy(), 4_000
    for number, key in enumerate(stream):
        running.add(key)
        if number >= window:
            running.add(stream[number - window], -1)
    held = Counter(stream[-window:])
    assert running.counts == held
    assert running.entropy_bits == pytest.approx(scipy_stats.entropy(list(held.values()), base=2), abs=1e-9)
    running.resum()
    assert running.weight == window


def test_nothing_and_one_key_have_no_entropy() -> None:
    assert entropy_bits(0, 0) == 0
    assert EntropySums.of([7]).entropy_bits == 0
    assert RunningEntropy().entropy_bits == 0


def test_the_table_of_small_counts_is_the_function() -> None:
    for count in (1, 2, 4_095, 4_096, 2.5, 0.25):
        assert clogc(count) == pytest.approx(count * math.log(count), rel=1e-15)
    assert clogc(0) == 0
