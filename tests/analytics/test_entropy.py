"""Entropy from sums against scipy, whole and merged."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.entropy import EntropySums, clogc, entropy_bits, merged

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


def test_nothing_and_one_key_have_no_entropy() -> None:
    assert entropy_bits(0, 0) == 0
    assert EntropySums.of([7]).entropy_bits == 0


def test_the_table_of_small_counts_is_the_function() -> None:
    for count in (1, 2, 4_095, 4_096, 2.5, 0.25):
        assert clogc(count) == pytest.approx(count * math.log(count), rel=1e-15)
    assert clogc(0) == 0
