"""Intervals of counts against scipy's quantiles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analytics.count_interval import LARGE, interval


def quantiles(mean: float, spread: float, miss: float) -> tuple[int, int]:
    ends = (miss / 2, 1 - miss / 2)
    if spread == 1:
        low, high = stats.poisson.ppf(ends, mean)
    else:
        low, high = stats.nbinom.ppf(ends, mean / (spread - 1), 1 / spread)
    return int(low), int(high)


@given(mean=st.floats(0.01, LARGE), spread=st.one_of(st.just(1.0), st.floats(1.01, 20)), miss=st.floats(0.002, 0.6))
def test_small_counts_are_those_of_the_law(mean: float, spread: float, miss: float) -> None:
    assert interval(mean, spread, miss) == quantiles(mean, spread, miss)


@given(mean=st.floats(LARGE, 5_000), spread=st.one_of(st.just(1.0), st.floats(1.1, 3)), miss=st.floats(0.02, 0.5))
def test_large_ones_are_near_it(mean: float, spread: float, miss: float) -> None:
    deviation = (mean * spread) ** 0.5
    for found, known in zip(interval(mean, spread, miss), quantiles(mean, spread, miss), strict=True):
        assert abs(found - known) <= 1 + 0.05 * deviation


def test_nothing_is_expected_where_nothing_came() -> None:
    assert interval(0.0, 1.0, 0.1) == (0, 0)


@pytest.mark.parametrize("mean", [1e-12, 1e-3, 29.9, 1e6])
@pytest.mark.parametrize("spread", [1.0, 1.0 + 1e-9, 50.0, 1e4])
@pytest.mark.parametrize("miss", [0.001, 0.6])
def test_every_law_has_an_interval(mean: float, spread: float, miss: float) -> None:
    low, high = interval(mean, spread, miss)
    assert 0 <= low <= high
