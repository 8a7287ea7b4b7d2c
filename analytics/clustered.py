"""What the cluster operator hears of embedded queries, and what it tells the planner."""

from __future__ import annotations

from msgspec import Struct


class QueryVector(Struct, frozen=True, array_like=True):
    """embed → cluster: a query's vector.

    Attributes:
        vector: float32, little-endian, as many numbers as the encoder has dimensions.
        at_ms: event time of the request that it was embedded for.
    """

    scope: str
    query: str
    fingerprint: str
    vector: bytes
    at_ms: int


class LiveCluster(Struct, frozen=True, array_like=True):
    """A group of like queries that is being asked for.

    Attributes:
        members: queries, the medoid first, then the heaviest; not all of a large group.
        size: how many there are.
        mass: requests for all of them within the window.
        growth: change of the mass since the last stride, as a share.
        rate_per_s: requests for all of them.
    """

    cluster_id: str
    members: tuple[str, ...]
    size: int
    mass: float
    growth: float
    rate_per_s: float


class Clustered(Struct, frozen=True, array_like=True):
    """cluster → plan: the groups of a scope at a stride, the heaviest first; replaces the scope's earlier ones.

    Attributes:
        until_ms: event time after which nobody stands for them any more.
    """

    scope: str
    at_ms: int
    until_ms: int
    fingerprint: str
    clusters: tuple[LiveCluster, ...]
