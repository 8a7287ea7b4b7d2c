"""How many requests the next 200 ms bring, as a mean and an interval (D13). Pure: time is passed in.

Arrivals are counted in steps. Averages of several horizons are kept, exponentially weighted (a mean of all so far until
a horizon is full), and mixed by recursive least squares: which horizon tells most differs by more than ten times
between services. In information form, with x the averages before a step, y its count and v the variance expected:

    R = λ R + (1 - λ) R0 + x xᵀ / v        b = λ b + (1 - λ) R0 w0 + x y / v        R w = b

What is forgotten is replaced by the prior (stabilised forgetting: Kulhavy and Zarrop, "On a general concept of
forgetting", Int. J. Control 58, 1993; Gunnarsson, "Combining tracking and regularization in recursive least squares
identification", CDC 1996). So R never gets below R0, however long nothing comes, and rounding errors fade like the
rest; the plain recursion of the covariance (Haykin, "Adaptive Filter Theory") grows without bound there.

The interval is that of a negative binomial with the variance that was seen (`analytics.count_interval`), at a level
that follows how often counts fell outside (Gibbs and Candès, "Adaptive conformal inference", arXiv 2106.00170): counts
are whole numbers, and no fixed level covers 90 % of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analytics.count_interval import interval
from analytics.records import Record, pack, unpack

Vector = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

OPEN_STEPS = 256
"""Counts of steps that nobody has looked at yet; whatever comes so far ahead closes the first of them."""
LATE_STEPS = 25
"""What comes so late is load of now; later, it is of another time."""
SILENT_STEPS = 300
"""After so many empty steps nothing is learned until something comes: all only fades, which costs the same however
long it lasts."""
LEAST_VARIANCE = 0.1
MISS_RANGE = (0.001, 0.6)


@dataclass(frozen=True)
class ForecastConfig:
    """How load is forecast.

    Attributes:
        step_ms: length of a step and of what is forecast, at most 200 ms.
        horizons: mean ages of the averages in steps, from 1 (the last count alone).
        forgetting: λ, how much of what was learned is left after a step.
        prior: R0 is so many times the identity, w0 the plain mean of all horizons.
        coverage: of the interval.
        spread_steps: mean age of what is known of the variance.
        level_rate: how far the interval's level moves after one count.
    """

    step_ms: int = 200
    horizons: tuple[int, ...] = (1, 3, 10, 30, 100, 300, 1_000, 3_000)
    forgetting: float = 0.9998
    prior: float = 30.0
    coverage: float = 0.9
    spread_steps: int = 1_500
    level_rate: float = 0.005

    def __post_init__(self) -> None:
        if not 0 < self.step_ms <= 200:
            raise ValueError(f"step_ms is {self.step_ms}: a step has 1 to 200 ms")


@dataclass(frozen=True)
class Forecast:
    """What the next step brings, in requests a second.

    Attributes:
        qps: mean.
        low_qps, high_qps: its count lies between these, with the probability that is configured.
        error_qps: standard error of the mean by chance alone: what noise of the counts did to the averages.
    """

    qps: float
    low_qps: float
    high_qps: float
    error_qps: float


class LoadForecast:
    """The load of one replica, or of any other series of arrivals.

    All times are those of one clock that is not set back: while it catches up, nothing that comes counts.

    Args:
        config: how it is forecast; a snapshot belongs to one of the same horizons.
    """

    def __init__(self, config: ForecastConfig | None = None) -> None:
        self.config = config or ForecastConfig()
        size = len(self.config.horizons)
        self._rates: Vector = 1.0 / np.array(self.config.horizons, dtype=np.float64)
        # Covariance of two averages of white noise of variance 1: a geometric series.
        kept = 1 - self._rates
        self._echoes = np.outer(self._rates, self._rates) / (1 - np.outer(kept, kept))
        self._prior = self.config.prior * np.eye(size)
        self._prior_pull = np.full(size, self.config.prior / size)
        self._averages: Vector = np.zeros(size)
        self._information: Vector = self._prior.copy()
        self._pull: Vector = self._prior_pull.copy()
        self._error_sum = self._mean_sum = 1.0
        self._miss = 1 - self.config.coverage
        self._steps = self._silent = 0
        self._closed: int | None = None
        self._open: dict[int, int] = {}
        self._expect()

    def arrived(self, at_ms: int, count: int = 1) -> bool:
        """Requests came; whether they still say something of the load of now."""
        step = at_ms // self.config.step_ms
        if self._closed is not None and step <= self._closed:
            if step <= self._closed - LATE_STEPS:
                return False
            step = self._closed + 1
        self._open[step] = self._open.get(step, 0) + count
        self._close_to(step - OPEN_STEPS)
        return True

    def look(self, now_ms: int) -> Forecast:
        """What the step brings that follows the last whole one; a look back changes nothing."""
        self._close_to(now_ms // self.config.step_ms - 1)
        per_s = 1000 / self.config.step_ms
        low, high = self._interval
        noise = float(self._weights @ self._echoes @ self._weights) * self.spread * self._mean
        return Forecast(self._mean * per_s, low * per_s, high * per_s, max(0.0, noise) ** 0.5 * per_s)

    @property
    def spread(self) -> float:
        """Variance of counts around the mean forecast, over that mean; at least that of a Poisson process, 1."""
        return max(1.0, self._error_sum / max(self._mean_sum, 1e-9))

    @property
    def weights(self) -> tuple[float, ...]:
        """What each horizon counts for at present."""
        return tuple(self._weights.tolist())

    def snapshot(self) -> bytes:
        """Versioned bytes of all that it learned."""
        record = ForecastRecord(
            1,
            self._averages.tolist(),
            self._information.ravel().tolist(),
            self._pull.tolist(),
            self._error_sum,
            self._mean_sum,
            self._miss,
            self._steps,
            self._silent,
            self._closed,
            sorted(self._open.items()),
        )
        return pack(record)

    def restore(self, blob: bytes) -> None:
        """Takes what `snapshot` of one with the same horizons gave."""
        record = unpack(blob, ForecastRecord)
        self._averages = np.array(record.averages)
        self._information = np.array(record.information).reshape(self._prior.shape)
        self._pull = np.array(record.pull)
        self._error_sum, self._mean_sum, self._miss = record.error_sum, record.mean_sum, record.miss
        self._steps, self._silent, self._closed = record.steps, record.silent, record.closed
        self._open = dict(record.open)
        self._expect()

    def _close_to(self, last: int) -> None:
        """Closes steps up to and with one, whatever came in them."""
        while (step := self._next(last)) <= last:
            count = self._open.pop(step, 0)
            self._silent = 0 if count else self._silent + 1
            if self._silent <= SILENT_STEPS:
                self._learn(count)
                self._closed = step
            else:
                until = min([last, *(each - 1 for each in self._open)])
                self._fade(until - step + 1)
                self._closed = until
            self._expect()

    def _next(self, last: int) -> int:
        """The step to be closed next. The first one is that of the first arrival, or of the first look."""
        if self._closed is None:
            if self._open:
                return min(self._open)
            self._closed = last
        return self._closed + 1

    def _learn(self, count: int) -> None:
        config, before, kept = self.config, self._averages, self.config.forgetting
        low, high = self._interval
        missed = not low <= count <= high
        miss = self._miss + config.level_rate * (1 - config.coverage - missed)
        self._miss = min(max(miss, MISS_RANGE[0]), MISS_RANGE[1])
        rate = max(1 / config.spread_steps, 1 / (self._steps + 30))
        self._error_sum += rate * ((count - self._mean) ** 2 - self._error_sum)
        self._mean_sum += rate * (self._mean - self._mean_sum)
        weighed = before / max(self._mean, LEAST_VARIANCE)
        self._information = kept * self._information + (1 - kept) * self._prior + np.outer(weighed, before)
        self._pull = kept * self._pull + (1 - kept) * self._prior_pull + weighed * count
        self._averages = before + np.maximum(self._rates, 1 / (self._steps + 1)) * (count - before)
        self._steps += 1

    def _fade(self, steps: int) -> None:
        """So many steps in which nothing came and nothing is learned."""
        kept = self.config.forgetting**steps
        self._information = kept * self._information + (1 - kept) * self._prior
        self._pull = kept * self._pull + (1 - kept) * self._prior_pull
        self._averages = self._averages * (1 - self._rates) ** steps
        self._steps += steps

    def _expect(self) -> None:
        """The mean and the interval of the next step."""
        self._weights: Vector = np.linalg.solve(self._information, self._pull)
        self._mean = max(0.0, float(self._weights @ self._averages))
        self._interval = interval(self._mean, self.spread, self._miss)


class ForecastRecord(Record, frozen=True, array_like=True):
    """What a forecast remembers: averages, information by rows, and its side of the equation; sums of squared errors
    and of means; the level of the interval; steps seen, the last of them that were empty, the last one closed, and
    counts of open ones."""

    averages: list[float]
    information: list[float]
    pull: list[float]
    error_sum: float
    mean_sum: float
    miss: float
    steps: int
    silent: int
    closed: int | None
    open: list[tuple[int, int]]
