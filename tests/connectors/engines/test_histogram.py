"""Differences and quantiles of Prometheus histograms."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.engines import Histogram

BOUNDS = (0.1, 0.5, 1.0, math.inf)


def histogram(values: list[float]) -> Histogram:
    counts = tuple(float(sum(value <= bound for value in values)) for bound in BOUNDS)
    return Histogram(BOUNDS, counts, sum(values))


def test_without_observations_there_is_no_quantile() -> None:
    assert Histogram().quantile(0.5) is None


def test_it_interpolates_within_a_bucket() -> None:
    assert histogram([0.2, 0.3, 0.4, 0.45]).quantile(0.5) == pytest.approx(0.3)


def test_beyond_the_last_bound_it_answers_with_that_bound() -> None:
    assert histogram([5.0, 6.0]).quantile(0.99) == 1.0


@settings(deadline=None)
@given(st.lists(st.floats(0, 2), min_size=1, max_size=50), st.lists(st.floats(0, 2), min_size=1, max_size=50))
def test_the_difference_is_what_came_after(before: list[float], after: list[float]) -> None:
    difference = histogram(before + after).since(histogram(before))
    assert difference.counts == histogram(after).counts
    assert difference.total == pytest.approx(sum(after), abs=1e-9)


def test_a_restart_counts_all_of_the_new_process() -> None:
    assert histogram([0.2]).since(histogram([0.2, 0.3])) == histogram([0.2])


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=80), st.floats(0, 1), st.floats(0, 1))
def test_quantiles_grow_and_stay_in_the_right_bucket(values: list[float], low: float, high: float) -> None:
    seen = histogram(values)
    low, high = sorted((low, high))
    below, above = seen.quantile(low), seen.quantile(high)
    assert below is not None
    assert above is not None
    assert below <= above + 1e-12
    exact = sorted(values)[max(0, math.ceil(high * len(values)) - 1)]
    assert above <= min(bound for bound in BOUNDS if bound >= exact) + 1e-12
