"""Between which numbers a count lies, of which mean and variance are known (D13).

Counts of arrivals are Poisson where people act alone; where they come in crowds the variance is larger, and the
negative binomial with r = mean / (spread - 1) and p = 1 / spread has both. Its probabilities follow from each other:
P(0) = p^r, P(k + 1) = P(k) (1 - p) (k + r) / (k + 1) (Johnson, Kemp and Kotz, "Univariate Discrete Distributions",
ch. 5). Beyond a mean of `LARGE` it is near enough to normal, with the skew as first correction (Cornish and Fisher).
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

LARGE = 30.0
POISSON = 1.0 + 1e-6


def interval(mean: float, spread: float, miss: float) -> tuple[int, int]:
    """The least and the greatest count that are likely.

    Args:
        mean: of the count, 0 or more.
        spread: variance over mean, at least 1.
        miss: probability of less or more, half of it on each side.
    """
    if mean <= 0:
        return 0, 0
    if mean > LARGE:
        return _normal(mean, spread, miss)
    share = 1 - 1 / spread
    rest = mean / spread
    # P(k + 1) / P(k) is (rest + share k) / (k + 1), with r (1 - p) = rest: the same for Poisson, where share is 0.
    each = math.exp(-mean) if spread <= POISSON else math.exp(-mean / (spread - 1) * math.log(spread))
    below, above = miss / 2, 1 - miss / 2
    count, total, low = 0, each, -1
    bound = mean + 60 * (math.sqrt(spread * mean) + spread)  # where rounding keeps the sum from `above`
    while True:
        if low < 0 and total >= below:
            low = count
        if total >= above or count > bound:
            return max(0, low), count
        each *= (rest + share * count) / (count + 1)
        count += 1
        total += each


def _normal(mean: float, spread: float, miss: float) -> tuple[int, int]:
    z = _z(round(miss, 4))
    deviation = math.sqrt(mean * spread)
    skew = (2 * spread - 1) / deviation
    bend = (z * z - 1) * skew / 6
    return max(0, round(mean + deviation * (bend - z))), round(mean + deviation * (bend + z))


@lru_cache(1_024)
def _z(miss: float) -> float:
    return NormalDist().inv_cdf(1 - miss / 2)
