"""Small scopes are not looked at as a graph: what is found must be what the graph would say."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.cluster_config import ClusterConfig
from analytics.clustered import QueryVector
from analytics.clustering import NOISE
from analytics.density_graph import DensityGraph
from analytics.records import Section
from analytics.scope_groups import TunedGrouping, grouped
from analytics.stores import MemoryMapStore
from analytics.vector_ring import VectorRing

CONFIG = ClusterConfig()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4)), min_size=1, max_size=6))
def test_few_requests_are_grouped_as_the_graph_groups_them(asked: list[tuple[int, int]]) -> None:
    """Queries in one of two directions, with so many requests."""
    store = MemoryMapStore()
    ring = VectorRing(CONFIG.queries, Section(store, "v"), Section(store, "l"))
    queries = [f"{number:032x}" for number in range(len(asked))]
    rows = np.eye(2, dtype=np.float32)[[direction for direction, _ in asked]]
    for query, row in zip(queries, rows, strict=True):
        ring.add(QueryVector("s", query, "f", row.tobytes(), 1_000), dict)
    weights = [float(requests) for _, requests in asked]
    graph = DensityGraph(CONFIG.eps_of("f"), CONFIG.min_samples)
    slots = graph.add(rows)
    graph.weights[slots] = np.maximum(1, weights)
    labels = graph.density(np.arange(len(graph.weights))).labels[: len(asked)]
    found = TunedGrouping(CONFIG).groups(ring, queries, weights)
    assert found == grouped(labels, rows, np.array(weights))
    assert len(found.groups) > 0 or set(found.labels) == {NOISE}
