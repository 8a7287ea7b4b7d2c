"""What a query or an answer is worth by few and unequal judgements: a Beta posterior with a prior (D6, tuned).

A mean over one judgement says as much as one over a hundred, so that the reference rule serves an answer that was
lucky once. Here a judgement is a fraction of a success, weighed by how far its source can be trusted, and the prior is
what its like have earned: the queries of its cluster, and behind them the scope. Three numbers come out. The lower
bound says that an answer is good enough to be served again, the upper one that something may turn out well and is worth
a warm-up, and the mean decides what leaves the queue.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

SOURCE_WEIGHTS: Mapping[str, float] = MappingProxyType(
    {"reward_model": 1.0, "judge": 1.0, "adopted": 1.0, "conversion": 1.0, "click": 0.25, "dwell": 0.25}
)
"""What one judgement of a source counts. Who clicks or stays had not seen another answer: that says least."""

QUARTERS = 4
"""Weights are whole quarters, so that sums of them do not depend on the order of addition."""

PRIOR_MEAN = 0.5
PRIOR_WEIGHT = 2.0
"""A prior counts as two judgements: with a mean of one half that is the uniform prior of Bayes and Laplace."""

BOUND_Z = 1.2816
"""Bounds leave a tenth of the posterior on their side."""


class Evidence(NamedTuple):
    """Weighted judgements: the sum of weight times reward, and of weights."""

    reward: float = 0.0
    weight: float = 0.0

    def plus(self, other: Evidence) -> Evidence:
        """Both together."""
        return Evidence(self.reward + other.reward, self.weight + other.weight)


class Posterior(NamedTuple):
    """Mean of what is judged, in [0, 1], and how sure that is.

    Attributes:
        mean: expected reward.
        weight: judgements that it rests on, the prior's included.

    >>> few, many = posterior(Evidence(1.0, 1.0)), posterior(Evidence(90.0, 100.0))
    >>> (round(few.lower(), 2), round(few.upper(), 2)), (round(many.lower(), 2), round(many.upper(), 2))
    ((0.36, 0.97), (0.85, 0.93))
    """

    mean: float
    weight: float

    @property
    def deviation(self) -> float:
        """Standard deviation of a Beta distribution with this mean and weight."""
        return math.sqrt(self.mean * (1 - self.mean) / (self.weight + 1))

    def lower(self, z: float = BOUND_Z) -> float:
        """What it is at least, by the normal approximation, not below 0."""
        return max(0.0, self.mean - z * self.deviation)

    def upper(self, z: float = BOUND_Z) -> float:
        """What it may be at most, not above 1."""
        return min(1.0, self.mean + z * self.deviation)


PRIOR = Posterior(PRIOR_MEAN, PRIOR_WEIGHT)


def posterior(evidence: Evidence, prior: Posterior = PRIOR) -> Posterior:
    """The posterior after some judgements.

    Args:
        prior: its weight counts as so many judgements with its mean.
    """
    weight = prior.weight + evidence.weight
    return Posterior((prior.mean * prior.weight + evidence.reward) / weight, weight)


def prior_of(others: Iterable[Evidence], behind: Posterior = PRIOR) -> Posterior:
    """The prior of one of a group, by what the others of the group have earned.

    However much they were judged, it counts as few judgements: they are like it, they are not it.

    Args:
        behind: the prior of the group itself.
    """
    together = Evidence()
    for each in others:
        together = together.plus(each)
    return Posterior(posterior(together, behind).mean, PRIOR_WEIGHT)
