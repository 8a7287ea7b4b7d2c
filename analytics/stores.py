"""Where a decision keeps what must survive a crash: two small ports, implemented over Flink state and over dicts.

Values are versioned bytes of our own encoding. The live Python object is a cache that is rebuilt from the store on
first touch; a store is written when something changed, never as one growing blob per event.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Protocol


class LogStore(Protocol):
    """Append-only logs in a few slots, and a map of blobs: the state of a demand shard."""

    def append(self, slot: int, entry: bytes) -> None:
        """Adds an entry at the end of a slot's log. The only write of the common event."""

    def read(self, slot: int) -> Iterable[bytes]:
        """A slot's entries in order. Only read after a restore."""

    def clear(self, slot: int) -> None:
        """Empties a slot."""

    def put(self, key: int, blob: bytes) -> None:
        """Sets one blob of the map."""

    def remove(self, key: int) -> None:
        """Removes one blob; harmless when it is not there."""

    def items(self) -> Iterable[tuple[int, bytes]]:
        """All blobs of the map, in any order. Only read after a restore."""


class MapStore(Protocol):
    """A map of small records: the state of a prefix tree or of a planner."""

    def put(self, key: str, blob: bytes) -> None:
        """Sets one record."""

    def remove(self, key: str) -> None:
        """Removes one record; harmless when it is not there."""

    def items(self) -> Iterable[tuple[str, bytes]]:
        """All records, in any order. Only read after a restore."""


class MemoryLogStore:
    """A `LogStore` in memory; `copy()` is its checkpoint."""

    def __init__(self, slots: int) -> None:
        self.logs: list[list[bytes]] = [[] for _ in range(slots)]
        self.blobs: dict[int, bytes] = {}

    def append(self, slot: int, entry: bytes) -> None:
        self.logs[slot].append(entry)

    def read(self, slot: int) -> Iterable[bytes]:
        return list(self.logs[slot])

    def clear(self, slot: int) -> None:
        self.logs[slot].clear()

    def put(self, key: int, blob: bytes) -> None:
        self.blobs[key] = blob

    def remove(self, key: int) -> None:
        self.blobs.pop(key, None)

    def items(self) -> Iterable[tuple[int, bytes]]:
        return list(self.blobs.items())

    @property
    def size_bytes(self) -> int:
        """Entries, keys and blobs; a key is a long."""
        return sum(map(len, chain(*self.logs, self.blobs.values()))) + 8 * len(self.blobs)

    def copy(self) -> MemoryLogStore:
        """What a checkpoint taken now would restore."""
        other = MemoryLogStore(len(self.logs))
        other.logs = [list(log) for log in self.logs]
        other.blobs = dict(self.blobs)
        return other


class MemoryMapStore:
    """A `MapStore` in memory; `copy()` is its checkpoint."""

    def __init__(self) -> None:
        self.records: dict[str, bytes] = {}

    def put(self, key: str, blob: bytes) -> None:
        self.records[key] = blob

    def remove(self, key: str) -> None:
        self.records.pop(key, None)

    def items(self) -> Iterable[tuple[str, bytes]]:
        return list(self.records.items())

    @property
    def size_bytes(self) -> int:
        """Keys and records."""
        return sum(map(len, chain(self.records, self.records.values())))

    def copy(self) -> MemoryMapStore:
        """What a checkpoint taken now would restore."""
        other = MemoryMapStore()
        other.records = dict(self.records)
        return other
