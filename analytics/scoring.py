"""The dynamic score of a query (D6): what it earned and how often it is asked, in [0, 1].

The reference rule takes the mean of its rewards. By `rule = "tuned"` it is the mean of a posterior, which a few
judgements move little and those of its cluster move too; demand is the same by both.

A query that nobody judged scores by demand alone. Weighing it as if it had earned nothing would cap its score at
1 - alpha = 0.3, so that a deployment without a reward model would drop nearly everything: no judgement is no bad one.
"""

from __future__ import annotations

import heapq
import math

from analytics.policy_sections import ScorePolicy
from analytics.reward_book import Earned

SPEC = ScorePolicy()


def compute_dynamic_score(reward: float | None, demand: float, demand_p99: float, alpha: float = 0.7) -> float:
    """α·reward + (1 − α)·demand, with demand divided by the scope's 99th percentile and cut at 1.

    Args:
        reward: in [0, 1]; None while none is known, then demand alone is the score.
        demand: Σ exp(−age / mean life) over the query's arrivals.
        demand_p99: 99th percentile of the demands of the scope's queries.
        alpha: weight of the reward half.

    >>> compute_dynamic_score(0.5, 3.0, 6.0)
    0.5
    >>> compute_dynamic_score(None, 9.0, 6.0)
    1.0
    """
    share = min(1.0, demand / demand_p99) if demand_p99 > 0 else 0.0
    return share if reward is None else alpha * reward + (1 - alpha) * share


def alpha_of(domain: str, policy: ScorePolicy = SPEC) -> float:
    """Weight of the reward in a request's domain, however that is spelled.

    >>> alpha_of("E-Commerce"), alpha_of("news"), alpha_of("")
    (0.85, 0.6, 0.7)
    """
    if not domain:
        return policy.alpha
    word = "".join(filter(str.isalnum, domain.lower()))
    if word == "ecommerce":
        return policy.alpha_ecommerce
    return policy.alpha_news if word == "news" else policy.alpha


def score_of(share: float, earned: Earned | None, policy: ScorePolicy = SPEC, reward: float | None = None) -> float:
    """The score of a query whose demand is `share` of the 99th percentile, with what it earned, if it was judged.

    Args:
        reward: what it is worth, where that is not the mean of its rewards.
    """
    if earned is None:
        return compute_dynamic_score(None, share, 1.0)
    worth = earned.mean if reward is None else reward
    return compute_dynamic_score(worth, share, 1.0, alpha_of(earned.domain, policy))


def percentile_99(values: list[float]) -> float:
    """The smallest value that at least 99 % of the values do not exceed; 0 of nothing."""
    if not values:
        return 0.0
    return heapq.nlargest(len(values) - math.ceil(0.99 * len(values)) + 1, values)[-1]
