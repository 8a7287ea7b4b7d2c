"""Backtest `forecast`: the requests of the next 200 ms, on real arrivals and on bursts (D13).

The first series is the Azure conversation trace. What is configured was looked at on its first half only; figures are
of the second half, through which the forecast goes on learning, as it would in life. `bursts` are generated, by seeds:
Poisson arrivals of a rate that leaps between one and forty a second, for twenty and six seconds on average. `mean` is
that of all counts so far, `last` the count before, `ewma` the exponentially weighted average of the horizon that was
best in hindsight on what is judged. `floor` is what a forecast errs by that knows the rate of a Poisson process at any
time, the root of the mean count: nothing that people send independently can be forecast better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import cast

import numpy as np

from analytics.load_forecast import ForecastConfig, LoadForecast
from stoker.backtests.data import data_file
from stoker.bench.figures import Figure, Report, at_most
from stoker.replay.azure import read_arrivals

TRACE = "traces/azure_llm_2023_conv.csv.gz"
STEP_MS = ForecastConfig().step_ms
HELD_OUT = 0.5
HORIZONS = (2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1_000, 2_000)
SEEDS = (231, 232, 233)
BURST_STEPS, BURST_LEARNING = 18_000, 0.25
BURST_LAW = ((0.2, 100.0), (8.0, 30.0))
"""Mean count and mean length in steps, of both rates."""
WITHIN = 1.03
BELOW_MEAN = 0.75
COVERAGE, COVERAGE_OFF = 0.9, 0.02


@dataclass(frozen=True)
class Played:
    """What forecasts of one series came to.

    Attributes:
        squares: mean squared error of a step's count, by name.
        covered: part of the counts that lay within the interval. width: of it, in requests of a step.
    """

    squares: Mapping[str, float]
    covered: float
    width: float


def run() -> Report:
    """Figures rmse.{mean,last,ewma,stoker,floor} in requests a step, coverage_90 and the interval's width, of both."""
    report = Report("forecast")
    _add(report, "", [played(azure_counts(), HELD_OUT)], "floor", WITHIN)
    _add(report, ".bursts", [played(bursts(seed), BURST_LEARNING) for seed in SEEDS], "mean", BELOW_MEAN)
    return report


def azure_counts() -> list[int]:
    """Requests of each step of the trace.

    Raises:
        BrokenConfiguration: it is absent.
    """
    steps = [arrival.at_ms // STEP_MS for arrival in read_arrivals(data_file(TRACE))]
    return cast(list[int], np.bincount(steps).tolist())


def bursts(seed: int, steps: int = BURST_STEPS) -> list[int]:
    """Requests of each step of generated load."""
    source, rates = np.random.default_rng(seed), list[float]()
    while len(rates) < steps:
        for rate, length in BURST_LAW:
            rates += [rate] * (1 + int(source.exponential(length)))
    return cast(list[int], source.poisson(rates[:steps]).tolist())


def played(counts: Sequence[int], judged_from: float) -> Played:
    """Forecasts a series, and judges the steps after a part of it."""
    start = int(len(counts) * judged_from)
    judged = counts[start:]
    forecast, told = LoadForecast(), []
    look = forecast.look(0)
    for step, count in enumerate(counts):
        told.append(look)
        if count:
            forecast.arrived(step * STEP_MS, count)
        look = forecast.look((step + 1) * STEP_MS)
    in_step = STEP_MS / 1000
    squares = {
        "mean": _square(_averages(counts, len(counts)), counts, start),
        "last": _square([0, *counts], counts, start),
        "ewma": min(_square(_averages(counts, horizon), counts, start) for horizon in HORIZONS),
        "stoker": _square([each.qps * in_step for each in told], counts, start),
        "floor": fmean(judged),
    }
    bounds = [(round(each.low_qps * in_step), round(each.high_qps * in_step)) for each in told[start:]]
    covered = fmean(low <= count <= high for (low, high), count in zip(bounds, judged, strict=True))
    return Played(squares, covered, fmean(high - low for low, high in bounds))


def _averages(counts: Sequence[int], horizon: int) -> list[float]:
    """What an exponentially weighted average of one horizon forecasts for each step; until it is full, a plain mean."""
    average, told = 0.0, []
    for number, count in enumerate(counts, start=1):
        told.append(average)
        average += (count - average) / min(horizon, number)
    return told


def _square(told: Iterable[float], counts: Sequence[int], start: int) -> float:
    return fmean((count - each) ** 2 for each, count in list(zip(told, counts, strict=False))[start:])


def _add(report: Report, suffix: str, runs: Sequence[Played], against: str, bound: float) -> None:
    """Figures of all runs of a series; the goal is on the error's ratio to that of another forecast."""
    errors = {name: math.sqrt(fmean(run.squares[name] for run in runs)) for name in runs[0].squares}
    for name, error in errors.items():
        ours = name == "stoker"
        goal = at_most(bound, of="ratio") if ours else None
        report.add(Figure(f"rmse.{name}{suffix}", error, "a step", errors[against] if ours else None, goal))
    covered = fmean(run.covered for run in runs)
    report.add(Figure(f"coverage_90{suffix}", covered, baseline=COVERAGE))
    report.add(Figure(f"coverage_90_off{suffix}", abs(covered - COVERAGE), goal=at_most(COVERAGE_OFF)))
    report.add(Figure(f"interval_width{suffix}", fmean(run.width for run in runs), "a step"))
