"""Forecasts of real arrivals; the half of the trace that is held out is left alone here."""

from __future__ import annotations

import pytest

from schemas import BrokenConfiguration
from stoker.backtests.forecast import azure_counts, bursts, played


def test_real_arrivals_are_forecast_almost_as_well_as_chance_allows() -> None:
    try:
        counts = azure_counts()
    except BrokenConfiguration as absent:
        pytest.skip(str(absent))
    found = played(counts[: len(counts) // 2], 0.5)
    assert found.squares["floor"] < found.squares["stoker"] < found.squares["floor"] * 1.03**2
    assert found.squares["stoker"] < found.squares["mean"] < found.squares["last"]
    assert 0.88 <= found.covered <= 0.92


def test_bursts_are_forecast_far_better_than_by_their_mean() -> None:
    found = played(bursts(1, 6_000), 0.5)
    assert found.squares["stoker"] < found.squares["mean"] * 0.75**2
    assert found.squares["stoker"] <= found.squares["ewma"] * 1.02
    assert 0.88 <= found.covered <= 0.92


def test_what_is_judged_is_the_part_that_was_named() -> None:
    found = played([2] * 50 + [5] * 50, 0.6)
    assert found.squares["last"] == 0
    assert found.squares["floor"] == 5
    assert found.squares["mean"] == pytest.approx(sum((5 - (100 + 5 * n) / (50 + n)) ** 2 for n in range(10, 50)) / 40)
