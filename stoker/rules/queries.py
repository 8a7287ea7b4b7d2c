"""Rules about queries: clusters (D5) and the dynamic score (D6)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from analytics import clustering, scoring
from analytics.reward_posterior import SOURCE_WEIGHTS, Evidence, posterior, prior_of
from schemas.fields import Share
from schemas.reward_event import RewardSource
from stoker.rules.registry import Input, rule

Amount = Annotated[float, Meta(ge=0)]


class ClusterInput(Input, frozen=True, kw_only=True):
    """Vectors of distinct queries, and how often each was asked for. Only spec looks at `neighbours`."""

    vectors: list[list[float]]
    weights: list[Amount] | None = None
    eps: Annotated[float, Meta(gt=0, le=2)] = clustering.SPEC_EPS
    min_samples: Annotated[int, Meta(ge=1)] = clustering.MIN_SAMPLES
    neighbours: Annotated[int, Meta(ge=1)] = clustering.NEIGHBOURS


def cluster_by_requests(asked: ClusterInput) -> object:
    """Each request is a sample: weighted density, in groups of two queries and more."""
    import numpy as np

    from analytics.density_graph import DensityGraph
    from analytics.scope_groups import grouped

    rows = np.array(asked.vectors, dtype=np.float32)
    weights = np.ones(len(rows)) if asked.weights is None else np.array(asked.weights)
    graph = DensityGraph(asked.eps, asked.min_samples)
    slots = graph.add(rows)
    graph.weights[slots] = np.maximum(1, weights)
    return _told(grouped(graph.density(slots).labels[slots], rows, weights))


@rule(
    "cluster",
    "D5",
    {
        "vectors": [[1, 0], [1, 0.1], [1, 0.2], [1, 0.3], [1, 0.4], [-1, 1]],
        "weights": [1, 1, 1, 1, 4, 9],
    },
    tuned=cluster_by_requests,
)
def cluster(asked: ClusterInput) -> object:
    """Groups of like queries by density in cosine distance; label -1 is in none and no candidate."""
    found = clustering.cluster(
        asked.vectors,
        asked.weights,
        eps=asked.eps,
        min_samples=asked.min_samples,
        neighbours=asked.neighbours,
    )
    return _told(found)


def _told(found: clustering.Clustering) -> object:
    return {"labels": found.labels, "groups": found.groups, "largest_share": found.largest_share}


class ScoreInput(Input, frozen=True, kw_only=True):
    """What a query earned and how often it is asked; `domain` chooses alpha where none is given.

    Only tuned looks at the rest: over how many `judgements` of which `source` the reward is a mean, and what others of
    its cluster have earned, a number a judgement.
    """

    reward: Share | None = None
    demand: Amount
    demand_p99: Amount
    alpha: Share | None = None
    domain: str = ""
    judgements: Amount = 1.0
    source: RewardSource = "reward_model"
    cluster_rewards: tuple[Share, ...] = ()


def posterior_score(asked: ScoreInput) -> object:
    """The score with the posterior mean of the reward, and whether an answer is served again or worth a trial."""
    if asked.reward is None:
        return compute_dynamic_score(asked)
    weight = SOURCE_WEIGHTS[asked.source] * asked.judgements
    prior = prior_of(Evidence(reward, 1.0) for reward in asked.cluster_rewards)
    found = posterior(Evidence(asked.reward * weight, weight), prior)
    lower, upper, floor = found.lower(), found.upper(), scoring.SPEC.reward_floor
    alpha = scoring.alpha_of(asked.domain) if asked.alpha is None else asked.alpha
    score = scoring.compute_dynamic_score(found.mean, asked.demand, asked.demand_p99, alpha)
    return {
        "score": score,
        "alpha": alpha,
        "dropped": score < scoring.SPEC.drop_below,
        "reward": found.mean,
        "lower": lower,
        "upper": upper,
        "serve": lower >= floor,
        "try": upper >= floor,
    }


@rule(
    "compute_dynamic_score",
    "D6",
    {"reward": 0.9, "demand": 3.0, "demand_p99": 6.0, "domain": "news"},
    tuned=posterior_score,
)
def compute_dynamic_score(asked: ScoreInput) -> object:
    """The score of a query: alpha · reward + (1 − alpha) · demand, demand as a share of the scope's 99th percentile."""
    alpha = scoring.alpha_of(asked.domain) if asked.alpha is None else asked.alpha
    score = scoring.compute_dynamic_score(asked.reward, asked.demand, asked.demand_p99, alpha)
    return {"score": score, "alpha": alpha, "dropped": score < scoring.SPEC.drop_below}
