"""Rules about queries: clusters (D5) and the dynamic score (D6)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from analytics import clustering, scoring
from schemas.fields import Share
from stoker.rules.registry import Input, rule

Amount = Annotated[float, Meta(ge=0)]


class ClusterInput(Input, frozen=True, kw_only=True):
    """Vectors of distinct queries, and how often each was asked for."""

    vectors: list[list[float]]
    weights: list[Amount] | None = None
    eps: Annotated[float, Meta(gt=0, le=2)] = clustering.SPEC_EPS
    min_samples: Annotated[int, Meta(ge=1)] = clustering.MIN_SAMPLES
    neighbours: Annotated[int, Meta(ge=1)] = clustering.NEIGHBOURS


@rule(
    "cluster",
    "D5",
    {
        "vectors": [[1, 0], [1, 0.1], [1, 0.2], [1, 0.3], [1, 0.4], [-1, 1]],
        "weights": [1, 1, 1, 1, 4, 9],
    },
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
    return {"labels": found.labels, "groups": found.groups, "largest_share": found.largest_share}


class ScoreInput(Input, frozen=True, kw_only=True):
    """What a query earned and how often it is asked; `domain` chooses alpha where none is given."""

    reward: Share | None = None
    demand: Amount
    demand_p99: Amount
    alpha: Share | None = None
    domain: str = ""


@rule("compute_dynamic_score", "D6", {"reward": 0.9, "demand": 3.0, "demand_p99": 6.0, "domain": "news"})
def compute_dynamic_score(asked: ScoreInput) -> object:
    """The score of a query: alpha · reward + (1 − alpha) · demand, demand as a share of the scope's 99th percentile."""
    alpha = scoring.alpha_of(asked.domain) if asked.alpha is None else asked.alpha
    score = scoring.compute_dynamic_score(asked.reward, asked.demand, asked.demand_p99, alpha)
    return {"score": score, "alpha": alpha, "dropped": score < scoring.SPEC.drop_below}
