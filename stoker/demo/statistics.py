"""Ratios of times with their uncertainty: a bootstrap over whole units, and a control in which no effect can be.

Touches of one unit resemble each other, so units are drawn, with replacement, in each sample apart; the interval is
that of the percentiles. The control deals the units' arms and the times of their commands anew: what the analysis then
finds is chance, and shows how much chance alone would do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stoker.demo.effect import Groups, Issued, Sample, Shadowed, first_commands, grouped

MIN_UNITS = 5
MIN_TOUCHES = 20
"""An interval needs at least so many units and touches in each arm; below that it would be a number without meaning."""
RESAMPLES = 2_000
SHUFFLES = 200
P95 = 0.95

Statistic = Literal["mean", "p95"]


@dataclass(frozen=True)
class Ratio:
    """A ratio of two samples' statistics with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> Literal["less", "more", "none"]:
        """Which side of 1 the whole interval lies on."""
        return "less" if self.high < 1 else "more" if self.low > 1 else "none"

    def __str__(self) -> str:
        return f"{self.value:.2f} (95 % interval {self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class Control:
    """What the analysis finds where arms and times mean nothing.

    Attributes:
        low, median, high: of the mean ratio over shuffles.
        as_small: share of shuffles whose ratio is at most the one that was measured.
        shuffles: how many gave a ratio.
    """

    low: float
    median: float
    high: float
    as_small: float
    shuffles: int


def enough(*samples: Sample) -> bool:
    """Whether there are units and touches enough in every sample for an interval to mean anything."""
    return all(sample.count >= MIN_TOUCHES and sample.distinct_units >= MIN_UNITS for sample in samples)


def ratio(above: Sample, below: Sample, statistic: Statistic, seed: int) -> Ratio | None:
    """A statistic of one sample over that of another; None where there is too little to say."""
    if not enough(above, below):
        return None
    source = np.random.default_rng(seed)
    resampled = _RESAMPLED[statistic]
    ratios = resampled(above, source) / np.maximum(resampled(below, source), 1e-9)
    low, high = np.quantile(ratios, [0.025, 0.975])
    measured = _statistic(above, statistic) / max(_statistic(below, statistic), 1e-9)
    return Ratio(float(measured), float(low), float(high))


def control(touches: Sequence[Shadowed], commands: Sequence[Issued], seed: int) -> Control | None:
    """The analysis of a run with shuffled arms and times; None where the run has too little to say."""
    measured = _mean_ratio(grouped(touches, commands))
    if measured is None:
        return None
    source = random.Random(seed)
    found = []
    for _ in range(SHUFFLES):
        chance = _mean_ratio(grouped(touches, _shuffled(commands, source)))
        if chance is not None:
            found.append(chance)
    if not found:
        return None
    low, median, high = np.quantile(np.asarray(found), [0.025, 0.5, 0.975])
    as_small = sum(chance <= measured for chance in found) / len(found)
    return Control(float(low), float(median), float(high), as_small, len(found))


def _shuffled(commands: Sequence[Issued], source: random.Random) -> list[Issued]:
    """One command a unit, with the time and arm of another unit of its scope."""
    by_scope: dict[str, list[Issued]] = {}
    for command in first_commands(commands).values():
        by_scope.setdefault(command.scope, []).append(command)
    out = []
    for _, own in sorted(by_scope.items()):
        dealt = [(command.at_ms, command.arm) for command in own]
        source.shuffle(dealt)
        out += [replace(command, at_ms=at_ms, arm=arm) for command, (at_ms, arm) in zip(own, dealt, strict=True)]
    return out


def _mean_ratio(groups: Groups) -> float | None:
    if not enough(groups.warmed, groups.held_out):
        return None
    return _statistic(groups.warmed, "mean") / max(_statistic(groups.held_out, "mean"), 1e-9)


def _statistic(sample: Sample, statistic: Statistic) -> float:
    times = np.asarray(sample.ttft_ms)
    return float(np.mean(times) if statistic == "mean" else np.quantile(times, P95))


def _drawn(sample: Sample, source: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Index of each touch's unit, and how often each resample drew each unit (resamples by units)."""
    _, which = np.unique(np.asarray(sample.units), return_inverse=True)
    units = int(which.max()) + 1
    return which, source.multinomial(units, np.full(units, 1 / units), size=RESAMPLES)


def _resampled_means(sample: Sample, source: np.random.Generator) -> NDArray[np.float64]:
    which, drawn = _drawn(sample, source)
    counts = np.bincount(which).astype(np.float64)
    sums = np.bincount(which, weights=np.asarray(sample.ttft_ms))
    means: NDArray[np.float64] = (drawn @ sums) / (drawn @ counts)
    return means


def _resampled_p95(sample: Sample, source: np.random.Generator) -> NDArray[np.float64]:
    which, drawn = _drawn(sample, source)
    times = np.asarray(sample.ttft_ms)
    order = np.argsort(times)
    out = np.empty(RESAMPLES)
    for row, counts in enumerate(drawn):
        upto = np.cumsum(counts[which[order]])
        out[row] = times[order[np.searchsorted(upto, P95 * upto[-1])]]
    return out


_RESAMPLED: dict[Statistic, Callable[[Sample, np.random.Generator], NDArray[np.float64]]] = {
    "mean": _resampled_means,
    "p95": _resampled_p95,
}
