"""Load of the next 200 ms: the mixture is the weighted fit that it should be, and stays sound for hours."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.load_forecast import LATE_STEPS, LEAST_VARIANCE, OPEN_STEPS, Forecast, ForecastConfig, LoadForecast
from schemas.errors import BrokenConfiguration

STEP_MS = 200


def fed(forecast: LoadForecast, counts: Iterable[int], start: int = 0) -> list[Forecast]:
    """What is forecast after each step."""
    told = []
    for step, count in enumerate(counts, start=start):
        if count:
            forecast.arrived(step * STEP_MS, count)
        told.append(forecast.look((step + 1) * STEP_MS))
    return told


def poisson(seed: int, mean: float, steps: int) -> list[int]:
    found: list[int] = np.random.default_rng(seed).poisson(mean, steps).tolist()
    return found


@settings(max_examples=20, deadline=None)
@given(counts=st.lists(st.integers(0, 30), min_size=1, max_size=60), forgetting=st.sampled_from([0.9, 0.99, 1.0]))
def test_the_weights_are_the_batch_fit_of_all_steps(counts: list[int], forgetting: float) -> None:
    """Minimum of the weighted squares, where what is forgotten of them is replaced by the prior."""
    config = ForecastConfig(forgetting=forgetting)
    forecast = LoadForecast(config)
    size = len(config.horizons)
    averages, rows, weights = np.zeros(size), [], []
    looks = [forecast.look(0), *fed(forecast, counts)]
    for number, count in enumerate(counts):
        variance = max(looks[number].qps * STEP_MS / 1000, LEAST_VARIANCE)
        rows.append((averages.copy(), count))
        weights.append(forgetting ** (len(counts) - 1 - number) / variance)
        rates = np.maximum(1 / np.array(config.horizons), 1 / (number + 1))
        averages += rates * (count - averages)
    scale = np.sqrt(np.array(weights))
    design = np.vstack([np.array([row for row, _ in rows]) * scale[:, None], np.sqrt(config.prior) * np.eye(size)])
    target = np.concatenate([np.array([y for _, y in rows]) * scale, np.full(size, np.sqrt(config.prior) / size)])
    fit = np.linalg.lstsq(design, target, rcond=None)[0]
    np.testing.assert_allclose(forecast.weights, fit, rtol=1e-7, atol=1e-9)
    assert looks[-1].qps == pytest.approx(max(0.0, float(fit @ averages)) * 1000 / STEP_MS, abs=1e-6)


def test_a_steady_load_is_forecast_with_the_error_that_it_tells() -> None:
    told = fed(LoadForecast(), poisson(1, 8.0, 12_000))[6_000:]
    errors = np.array([each.qps - 40.0 for each in told])
    assert abs(errors.mean()) < 0.5
    assert np.mean([each.error_qps for each in told]) == pytest.approx(errors.std(), rel=0.5)


@pytest.mark.parametrize(("mean", "crowd"), [(0.3, 1), (1.1, 1), (8.0, 1), (60.0, 1), (2.0, 4)])
def test_nine_of_ten_counts_lie_in_the_interval(mean: float, crowd: int) -> None:
    """Also where people come in crowds: as many at once."""
    counts = [crowd * count for count in poisson(2, mean / crowd, 8_000)]
    told = fed(LoadForecast(), counts)
    inside = [told[n - 1].low_qps <= 5 * counts[n] <= told[n - 1].high_qps for n in range(2_000, len(counts))]
    assert 0.88 <= np.mean(inside) <= 0.92


def test_a_change_is_followed_within_seconds() -> None:
    forecast = LoadForecast()
    fed(forecast, poisson(3, 2.0, 3_000))
    for start in range(3_000, 6_000, 200):  # it learns that this service leaps
        fed(forecast, poisson(start, 12.0, 100), start)
        fed(forecast, poisson(start, 2.0, 100), start + 100)
    told = fed(forecast, poisson(4, 12.0, 15), 6_000)
    assert told[-1].qps > 45


def test_hours_of_silence_bursts_and_giant_counts_leave_it_sound() -> None:
    forecast, now_ms = LoadForecast(), 0
    chance = np.random.default_rng(5)
    for hour in range(12):
        for _ in range(200):
            now_ms += STEP_MS
            forecast.arrived(now_ms, int(chance.poisson(10.0 ** chance.integers(0, 5))))
            look = forecast.look(now_ms + STEP_MS)
            assert np.isfinite([look.qps, look.low_qps, look.high_qps, look.error_qps]).all()
            assert 0 <= look.low_qps <= look.high_qps
        information = np.array(forecast._information)
        assert np.linalg.eigvalsh((information + information.T) / 2).min() >= forecast.config.prior * 0.999
        now_ms += 3_600_000 * (1 + hour % 3)
        quiet = forecast.look(now_ms)
        assert quiet.low_qps == 0
        assert quiet.qps < 0.01 * look.qps
    fed(forecast, poisson(6, 5.0, 3_000), now_ms // STEP_MS)
    assert forecast.look(now_ms + 3_000 * STEP_MS).qps == pytest.approx(25, rel=0.3)


def test_a_long_silence_costs_no_more_than_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    forecast = LoadForecast()
    fed(forecast, poisson(7, 5.0, 500))
    closed = []
    fade = LoadForecast._fade
    monkeypatch.setattr(LoadForecast, "_fade", lambda self, steps: (closed.append(steps), fade(self, steps)))
    forecast.look(86_400_000)
    assert len(closed) == 1
    assert closed[0] > 400_000


def test_what_comes_late_is_load_of_now_and_what_is_long_past_is_none() -> None:
    forecast = LoadForecast()
    fed(forecast, [3] * 100)
    assert forecast.arrived(99 * STEP_MS)
    assert forecast.arrived((99 - LATE_STEPS + 1) * STEP_MS)
    assert not forecast.arrived((99 - LATE_STEPS) * STEP_MS)
    told = forecast.look(100 * STEP_MS)
    assert forecast.look(50 * STEP_MS) == told
    other = LoadForecast()
    fed(other, [*[3] * 100, 2])
    forecast.look(101 * STEP_MS)
    assert forecast.snapshot() == other.snapshot()


def test_nobody_needs_to_look() -> None:
    forecast = LoadForecast()
    for step in range(3 * OPEN_STEPS):
        forecast.arrived(step * STEP_MS, 2)
    assert len(forecast._open) <= OPEN_STEPS
    looked = LoadForecast()
    fed(looked, [2] * (3 * OPEN_STEPS))
    forecast.look(3 * OPEN_STEPS * STEP_MS)
    assert forecast.snapshot() == looked.snapshot()


def test_a_step_has_at_most_200_ms() -> None:
    with pytest.raises(ValueError, match="step_ms is 201"):
        ForecastConfig(step_ms=201)


def test_bytes_of_a_later_version_are_refused() -> None:
    blob = LoadForecast().snapshot()
    with pytest.raises(BrokenConfiguration, match="version 2"):
        LoadForecast().restore(blob[:1] + b"\x02" + blob[2:])
