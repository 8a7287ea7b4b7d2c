"""The last distinct queries of a scope that have a vector: a bounded ring, the least recently asked leaves first.

A vector is written once. When its query was asked for later is a record of its own, so that no vector is rewritten for
it; within a stride that is known from the counts, which outlive it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analytics.clustered import QueryVector
from analytics.records import Record, Section, pack, unpack

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLACK = 50
"""When a ring is full, a fiftieth of it leaves at once; a small ring loses what is too much."""


class VectorRecord(Record, frozen=True, array_like=True):
    """A query's vector, float32 bytes in the machine's order (little-endian wherever Stoker runs)."""

    query: str
    fingerprint: str
    at_ms: int
    vector: bytes


class AskedRecord(Record, frozen=True, array_like=True):
    """When a query was asked for after its vector came."""

    query: str
    at_ms: int


class VectorRing:
    """Vectors of one encoder by query.

    Args:
        window: how many are kept.
    """

    def __init__(self, window: int, vectors: Section, asked: Section) -> None:
        self._window = window
        self._store = vectors
        self._asked_store = asked
        self._vectors: dict[str, VectorRecord] = {}
        self._asked: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._vectors)

    def __contains__(self, query: str) -> bool:
        return query in self._vectors

    @property
    def fingerprint(self) -> str:
        """The encoder of all vectors that are held; empty where none is."""
        return next(iter(self._vectors.values())).fingerprint if self._vectors else ""

    def add(self, vector: QueryVector, last_ms: Callable[[], Mapping[str, int]]) -> None:
        """Takes a vector. One of another encoder begins the ring anew: vectors of two encoders have no distance.

        Args:
            last_ms: tells when queries were asked for by what the counts say; asked only where somebody must leave.
        """
        if vector.fingerprint != self.fingerprint:
            for query in list(self._vectors):
                self._drop(query)
        held = self._vectors.get(vector.query)
        at_ms = vector.at_ms if held is None else max(held.at_ms, vector.at_ms)
        record = VectorRecord(1, vector.query, vector.fingerprint, at_ms, vector.vector)
        if record != held:
            self._vectors[vector.query] = record
            self._store.put(vector.query, pack(record))
        surplus = len(self._vectors) - self._window
        if surplus > 0:
            # Finding who goes means looking at all, so that of many a few go at once.
            asked = last_ms()
            oldest = ((self._last_ms(query, asked), query) for query in self._vectors)
            for _, query in heapq.nsmallest(surplus + self._window // SLACK, oldest):
                self._drop(query)

    def asked(self, last_ms: Mapping[str, int]) -> None:
        """Writes down when queries were asked for, before the counts forget it."""
        for query, at_ms in sorted(last_ms.items()):
            if query in self._vectors and at_ms > self._last_ms(query, {}):
                self._asked[query] = at_ms
                self._asked_store.put(query, pack(AskedRecord(1, query, at_ms)))

    def forget(self, before_ms: int) -> None:
        """Drops what nobody has asked for since a time."""
        for query in [query for query in self._vectors if self._last_ms(query, {}) < before_ms]:
            self._drop(query)

    def last_ms(self, query: str) -> int:
        """When a query was last asked for, as far as it was written down."""
        return self._last_ms(query, {})

    @property
    def oldest_ms(self) -> int | None:
        """When the query that was asked for the longest ago was asked for; None where there is none."""
        return min((self._last_ms(query, {}) for query in self._vectors), default=None)

    def queries(self) -> list[str]:
        """The queries, sorted: the same whatever order they came in."""
        return sorted(self._vectors)

    def latest(self, count: int) -> list[str]:
        """The queries that were asked for last, sorted; all where there are no more."""
        if len(self._vectors) <= count:
            return self.queries()
        return sorted(heapq.nlargest(count, self._vectors, key=lambda query: (self._last_ms(query, {}), query)))

    def vector(self, query: str) -> bytes:
        """A query's vector as it came."""
        return self._vectors[query].vector

    def rows(self, queries: Sequence[str]) -> NDArray[Any]:
        """The matrix of some queries' vectors."""
        import numpy as np

        blobs = [np.frombuffer(self._vectors[query].vector, dtype="<f4") for query in queries]
        return np.vstack(blobs) if blobs else np.empty((0, 0), dtype=np.float32)

    def restore(self, blob: bytes) -> None:
        """Takes back one vector."""
        record = unpack(blob, VectorRecord)
        self._vectors[record.query] = record

    def restore_asked(self, blob: bytes) -> None:
        """Takes back one time."""
        record = unpack(blob, AskedRecord)
        self._asked[record.query] = record.at_ms

    def _last_ms(self, query: str, last_ms: Mapping[str, int]) -> int:
        return max(self._vectors[query].at_ms, self._asked.get(query, 0), last_ms.get(query, 0))

    def _drop(self, query: str) -> None:
        del self._vectors[query]
        self._store.remove(query)
        if self._asked.pop(query, None) is not None:
            self._asked_store.remove(query)
