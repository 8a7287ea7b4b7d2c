"""Groups of like queries among the last requests: exact DBSCAN of a sliding window, brought up to date once a stride.

Each request is a sample, so a query that was asked for five times is dense by itself (D5, tuned). One point stands for
all requests of a query and weighs what they count, which gives the same groups as DBSCAN of the raw window; the cost
of a stride is one matrix product of the queries that are new with those that are there, and the components of the core
points' links (algorithms.md section 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analytics.clustering import MIN_SAMPLES, SPEC_EPS
from analytics.density_graph import Density, DensityGraph
from analytics.records import Record, pack, unpack
from analytics.sketches import Floats, Ints


@dataclass(frozen=True)
class WindowConfig:
    """Settings.

    Attributes:
        window: requests that are looked at, the last ones.
        eps: radius in cosine distance; it belongs to an encoder and to the window (`cluster_radius`).
        min_samples: requests within the radius, itself included, that make one a core.
    """

    window: int = 10_000
    eps: float = SPEC_EPS
    min_samples: int = MIN_SAMPLES


class WindowRecord(Record, frozen=True, array_like=True):
    """The window as it is kept: its queries with their vectors (float32, little-endian), and the requests in order."""

    queries: tuple[str, ...]
    dimension: int
    vectors: bytes
    requests: bytes


@dataclass(frozen=True)
class WindowGroups:
    """What a window holds.

    Attributes:
        queries: distinct ones, in the order of their first request in the window.
        counts: requests of each.
        labels: number of each one's group or `NOISE`, as `sklearn.cluster.DBSCAN` numbers the raw window's.
        cores: which are cores.
    """

    queries: tuple[str, ...]
    counts: tuple[int, ...]
    labels: tuple[int, ...]
    cores: tuple[bool, ...]


class WindowDbscan:
    """The last requests' queries, linked by how near their vectors are."""

    def __init__(self, config: WindowConfig) -> None:
        self._config = config
        self._graph = DensityGraph(config.eps, config.min_samples)
        self._slots: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._ring: Ints = np.zeros(config.window, dtype=np.int64)
        self._count = 0

    def __len__(self) -> int:
        return min(self._count, self._config.window)

    def __contains__(self, query: str) -> bool:
        return query in self._slots

    def extend(self, queries: Sequence[str], vectors: Floats) -> None:
        """Takes some requests, the oldest first; what they push out of the window leaves it.

        Args:
            queries: of the requests, at most as many as the window holds.
            vectors: a row each, float32. Only that of a query that is not in the window is looked at.

        Raises:
            ValueError: too many requests, or rows that do not fit.
        """
        if len(queries) > self._config.window or len(queries) != len(vectors):
            raise ValueError(f"{len(queries)} requests with {len(vectors)} vectors for {self._config.window} places")
        fresh: dict[str, int] = {}
        for place, query in enumerate(queries):
            if query not in self._slots:
                fresh.setdefault(query, place)
        slots = self._graph.add(np.ascontiguousarray(vectors[list(fresh.values())], dtype=np.float32))
        for query, slot in zip(fresh, slots.tolist(), strict=True):
            self._slots[query], self._names[slot] = slot, query
        at = (self._count + np.arange(len(queries))) % self._config.window
        filled = self._count + np.arange(len(queries)) >= self._config.window
        leaving = self._ring[at[filled]]
        entering = np.array([self._slots[query] for query in queries], dtype=np.int64)
        weights = self._graph.weights
        np.add.at(weights, entering, 1)
        np.subtract.at(weights, leaving, 1)
        self._ring[at] = entering
        self._count += len(queries)
        left = np.unique(leaving)
        gone = left[weights[left] == 0]
        for slot in gone.tolist():
            del self._slots[self._names.pop(slot)]
        self._graph.remove(gone)

    def density(self) -> Density:
        """Cores and groups by slot; `groups` gives them names."""
        return self._graph.density(self._order())

    def groups(self) -> WindowGroups:
        """The groups of now."""
        density, order = self.density(), self._order()
        slots = sorted(self._names, key=order.__getitem__)
        return WindowGroups(
            queries=tuple(self._names[slot] for slot in slots),
            counts=tuple(self._graph.weights[slots].tolist()),
            labels=tuple(density.labels[slots].tolist()),
            cores=tuple(density.cores[slots].tolist()),
        )

    def snapshot(self) -> bytes:
        """Versioned bytes of the window."""
        numbers = {slot: number for number, slot in enumerate(self._names)}
        rows = self._graph.rows(np.array(list(self._names), dtype=np.int64)).astype("<f4")
        requests = np.array([numbers[slot] for slot in self._requests().tolist()], dtype="<u4")
        queries = tuple(self._names.values())
        return pack(WindowRecord(1, queries, rows.shape[1], rows.tobytes(), requests.tobytes()))

    def restore(self, blob: bytes) -> None:
        """Takes what `snapshot` of one with the same settings gave; into an empty one."""
        record = unpack(blob, WindowRecord)
        rows = np.frombuffer(record.vectors, dtype="<f4").reshape(len(record.queries), record.dimension)
        requests = np.frombuffer(record.requests, dtype="<u4")
        self.extend([record.queries[number] for number in requests], rows[requests])

    def _requests(self) -> Ints:
        """Slots of the window's requests, the oldest first."""
        if self._count <= self._config.window:
            return self._ring[: self._count]
        return np.roll(self._ring, -(self._count % self._config.window))

    def _order(self) -> Ints:
        """By slot, where in the window it was asked for first."""
        requests = self._requests()
        order = np.full(len(self._graph.weights), len(requests), dtype=np.int64)
        order[requests[::-1]] = np.arange(len(requests))[::-1]
        return order
