"""A Prometheus histogram as a value: differences between two scrapes, and quantiles out of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Histogram:
    """Cumulative counts by upper bound.

    Args:
        bounds: ascending upper bounds, the last one infinity.
        counts: observations at or below each bound.
        total: sum of the observed values.
    """

    bounds: tuple[float, ...] = (math.inf,)
    counts: tuple[float, ...] = (0.0,)
    total: float = 0.0

    @staticmethod
    def of(buckets: Mapping[float, float], total: float) -> Histogram:
        """Of cumulative counts by upper bound; without any, no observation."""
        if not buckets:
            return Histogram(total=total)
        bounds = tuple(sorted(buckets))
        return Histogram(bounds, tuple(buckets[bound] for bound in bounds), total)

    @property
    def count(self) -> float:
        """Number of observations."""
        return self.counts[-1]

    def since(self, earlier: Histogram) -> Histogram:
        """What was observed after `earlier`. Other bounds or fewer observations mean a restart: then all of it."""
        if earlier.bounds != self.bounds or earlier.count > self.count:
            return self
        counts = tuple(now - then for now, then in zip(self.counts, earlier.counts, strict=True))
        return Histogram(self.bounds, counts, self.total - earlier.total)

    def quantile(self, share: float) -> float | None:
        """Value below which `share` (0..1) of the observations lie, interpolated within its bucket as Prometheus'
        `histogram_quantile` does; None without observations. The infinite bucket answers with its lower bound."""
        if self.count <= 0:
            return None
        rank = share * self.count
        lower, below = 0.0, 0.0
        for bound, cumulated in zip(self.bounds, self.counts, strict=True):
            if cumulated >= rank and cumulated > below:
                if math.isinf(bound):
                    return lower
                return lower + (bound - lower) * (rank - below) / (cumulated - below)
            lower, below = (lower if math.isinf(bound) else bound), cumulated
        return lower
