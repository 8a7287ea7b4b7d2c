"""How the queries of a scope's window are grouped at a stride, by the reference rule or ours (D5).

The reference rule groups the last 500 queries from scratch. Ours takes all that are remembered and weighs each with its
requests; who is near whom is kept from stride to stride (`DensityGraph`), as a cache of the ring: one that is built
anew from it says the same. A query that is dense by itself alone is no group of like queries, and is left to demand.
Where nearly all queries are alike (one template, other numbers) the links would take more room than all else; then as
many of the latest queries are looked at as could be all alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from analytics.cluster_config import ClusterConfig
from analytics.clustering import NOISE, Clustering, Group, cluster
from analytics.density_graph import BLOCK, DensityGraph
from analytics.sketches import Floats, Ints
from analytics.vector_ring import VectorRing

Weights = npt.NDArray[np.float64]


class Grouping(Protocol):
    """Groups the queries of a ring."""

    def groups(self, ring: VectorRing, queries: Sequence[str], weights: Sequence[float]) -> Clustering:
        """The groups of now.

        Args:
            queries: of the ring, sorted; rows are places among them.
            weights: requests of each in the mass's time, 0 of one that nobody asked for lately.
        """


class SpecGrouping:
    """The reference rule over the whole ring, whose size is its window."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config

    def groups(self, ring: VectorRing, queries: Sequence[str], weights: Sequence[float]) -> Clustering:
        """See `Grouping`."""
        config = self._config
        return cluster(
            ring.rows(queries),
            weights,
            eps=config.eps_of(ring.fingerprint),
            min_samples=config.min_samples,
            neighbours=config.neighbours,
        )


class TunedGrouping:
    """Weighted density over the whole ring, brought up to date with it at each stride."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._fingerprint: str | None = None
        """Of the graph; None until there is one: most scopes never need it."""

    def groups(self, ring: VectorRing, queries: Sequence[str], weights: Sequence[float]) -> Clustering:
        """See `Grouping`. That a query is in the ring says that it was asked for, so that it weighs one at least."""
        # Most scopes are small: no group has one query alone, or less weight than a core point asks for.
        if len(queries) < 2 or sum([max(1.0, weight) for weight in weights]) < self._config.min_samples:
            return Clustering((NOISE,) * len(queries), ())
        if self._follow(ring, queries):
            graph, slots, rows = self._graph, self._slots, np.arange(len(queries))
        else:
            latest = ring.latest(math.isqrt(2 * self._config.max_links))
            graph = self._empty(ring.fingerprint)
            slots = dict(zip(latest, graph.add(ring.rows(latest)).tolist(), strict=True))
            rows = np.searchsorted(np.array(queries), np.array(latest))
        asked = np.asarray(weights, dtype=np.float64)
        at = np.array([slots[queries[row]] for row in rows.tolist()], dtype=np.int64)
        graph.weights[at] = np.maximum(1, asked[rows])
        order = np.zeros(len(graph.weights), dtype=np.int64)
        order[at] = rows
        labels = np.full(len(queries), NOISE, dtype=np.int64)
        labels[rows] = graph.density(order).labels[at]
        return grouped(labels, ring.rows(queries), asked)

    def _begin(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint
        self._graph = self._empty(fingerprint)
        self._slots: dict[str, int] = {}
        self._vectors: dict[str, bytes] = {}

    def _empty(self, fingerprint: str) -> DensityGraph:
        return DensityGraph(self._config.eps_of(fingerprint), self._config.min_samples)

    def _follow(self, ring: VectorRing, queries: Sequence[str]) -> bool:
        """Brings the graph up to date with the ring; begins anew and says False where that has too many links."""
        if ring.fingerprint != self._fingerprint:
            self._begin(ring.fingerprint)
        now = {query: ring.vector(query) for query in queries}
        gone = [query for query, vector in self._vectors.items() if now.get(query) != vector]
        self._graph.remove(np.array([self._slots.pop(query) for query in gone], dtype=np.int64))
        for query in gone:
            del self._vectors[query]
        fresh = [query for query in queries if query not in self._slots]
        for start in range(0, len(fresh), BLOCK):
            some = fresh[start : start + BLOCK]
            for query, slot in zip(some, self._graph.add(ring.rows(some)).tolist(), strict=True):
                self._slots[query], self._vectors[query] = slot, now[query]
            if self._graph.links > self._config.max_links:
                self._begin(ring.fingerprint)
                return False
        return True


def grouping(config: ClusterConfig) -> Grouping:
    """What the settings ask for."""
    return SpecGrouping(config) if config.rule == "spec" else TunedGrouping(config)


def grouped(labels: Ints, rows: Floats, weights: Weights) -> Clustering:
    """Groups of two and more with their medoids, members and mass, numbered anew.

    A medoid's sum of cosine distances to its group, weighted, is least where its product with the group's weighted sum
    of unit vectors is greatest, so that no distance between two members is needed.
    """
    counts = np.bincount(labels[labels >= 0])
    numbers = np.full(len(counts) + 1, NOISE, dtype=np.int64)
    kept = np.flatnonzero(counts > 1)
    numbers[kept] = np.arange(len(kept))
    groups = []
    for label in kept.tolist():
        members = np.flatnonzero(labels == label)
        inside, mass = weights[members], float(weights[members].sum())
        units = rows[members].astype(np.float64)
        lengths = np.linalg.norm(units, axis=1, keepdims=True)
        units /= np.where(lengths > 0, lengths, 1.0)
        nearness = units @ ((inside if mass > 0 else np.ones(len(members))) @ units)
        # Sums of the same products in another order must not decide between equals.
        medoid = int(members[np.argmax(np.round(nearness, 9))])
        heaviest = members[np.argsort(-inside, kind="stable")]
        groups.append(Group(tuple(heaviest.tolist()), medoid, mass))
    return Clustering(tuple(numbers[labels].tolist()), tuple(groups))
