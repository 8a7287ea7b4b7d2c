"""One memory that keeps the contracts of `base`: expiry by a clock, prolonging, taking over, fencing.

Every fake takes a `MemoryStore`, which is one Redis; those that share a store see each other's keys, so a test can put
as a job and read as the executor.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from connectors.redis.base import Already, EmbeddingEntry, Lease, LedgerState, Started, Vector
from connectors.redis.compression import packed, unpacked
from connectors.redis.embedding_cache import entry_fields, entry_key, entry_metadata
from connectors.redis.keys import blob_key, brake_key, cached_value_key, fence_key, lease_key, ledger_key, vector_key
from connectors.redis.leases import LEASE_MS
from connectors.redis.ledger import LEDGER_TTL_MS
from connectors.redis.vectors import vector_bytes, vector_of
from schemas.errors import TransientFault
from schemas.warmup_outcome import Status


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class MemoryStore:
    """One Redis. `offline = True` makes every call fail as if it were gone; `wipe()` is a restart without its data."""

    now_ms: Callable[[], int] = _wall_clock_ms
    offline: bool = False
    values: dict[str, Any] = field(default_factory=dict)
    ends_ms: dict[str, int] = field(default_factory=dict)

    def read(self, key: str) -> Any:
        """The live value of a key, or None."""
        if self.offline:
            raise TransientFault("Redis: the store is offline")
        if key in self.ends_ms and self.ends_ms[key] <= self.now_ms():
            self.drop(key)
        return self.values.get(key)

    def write(self, key: str, value: Any, ttl_ms: int) -> None:
        """Set a key and begin its life anew."""
        self.read(key)
        self.values[key] = value
        self.ends_ms[key] = self.now_ms() + ttl_ms

    def prolong(self, key: str, ttl_ms: int) -> bool:
        """Make a live key live at least `ttl_ms` from now; whether that changed anything."""
        end = self.now_ms() + ttl_ms
        if self.read(key) is None or end <= self.ends_ms.get(key, end):
            return False
        self.ends_ms[key] = end
        return True

    def drop(self, key: str) -> bool:
        """Remove a key; whether it was there."""
        self.ends_ms.pop(key, None)
        return self.values.pop(key, None) is not None

    def wipe(self) -> None:
        """Forget everything."""
        self.values.clear()
        self.ends_ms.clear()


class MemoryBlobs:
    """`Blobs` in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def put(self, scope: str, blobs: Mapping[str, bytes], ttl_ms: int) -> None:
        """Store texts."""
        frames = {blob_key(scope, h): packed(text, blob_key(scope, h)) for h, text in blobs.items()}
        for key, frame in frames.items():
            if self._store.read(key) is None:
                self._store.write(key, frame, ttl_ms)
            else:
                self._store.prolong(key, ttl_ms)

    def get(self, scope: str, hashes: Sequence[str]) -> dict[str, bytes]:
        """The texts that are present."""
        frames = {h: self._store.read(blob_key(scope, h)) for h in hashes}
        return {h: unpacked(frame, blob_key(scope, h)) for h, frame in frames.items() if frame is not None}


class MemoryAsyncBlobs:
    """`AsyncBlobs` in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._blobs = MemoryBlobs(store)

    async def get(self, scope: str, hashes: Sequence[str]) -> dict[str, bytes]:
        """The texts that are present."""
        return self._blobs.get(scope, hashes)

    async def renew(self, scope: str, hashes: Sequence[str], ttl_ms: int) -> frozenset[str]:
        """Prolong."""
        for content_hash in hashes:
            self._store.prolong(blob_key(scope, content_hash), ttl_ms)
        return frozenset(h for h in hashes if self._store.read(blob_key(scope, h)) is not None)


class MemoryVectors:
    """`Vectors` in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def put(self, scope: str, fingerprint: str, vectors: Mapping[str, Vector], ttl_ms: int) -> None:
        """Store vectors."""
        values = {
            (key := vector_key(scope, fingerprint, query)): vector_bytes(vector, key)
            for query, vector in vectors.items()
        }
        for key, value in values.items():
            self._store.write(key, value, ttl_ms)

    def get(self, scope: str, fingerprint: str, queries: Sequence[str]) -> dict[str, Vector]:
        """The vectors that are present."""
        keys = {query: vector_key(scope, fingerprint, query) for query in queries}
        values = {query: self._store.read(key) for query, key in keys.items()}
        return {query: vector_of(value, keys[query]) for query, value in values.items() if value is not None}


class MemoryAsyncVectors:
    """`AsyncVectors` in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._vectors = MemoryVectors(store)

    async def get(self, scope: str, fingerprint: str, queries: Sequence[str]) -> dict[str, Vector]:
        """The vectors that are present."""
        return self._vectors.get(scope, fingerprint, queries)


@dataclass(frozen=True)
class _Claim:
    state: LedgerState
    holder: str


class MemoryLedger:
    """`Ledger` in memory; leases are looked up in the same store."""

    def __init__(self, store: MemoryStore, *, ttl_ms: int = LEDGER_TTL_MS) -> None:
        self._store = store
        self._ttl_ms = ttl_ms

    def _lives(self, holder: str, replica: str) -> bool:
        leases = (self._store.read(lease_key(replica)), self._store.read(lease_key(holder)))
        return any(lease is not None and lease.holder == holder for lease in leases)

    async def begin(self, command_id: str, replica: str, holder: str) -> Started | Already:
        """Claim a command."""
        key = ledger_key(command_id, replica)
        entry: _Claim | None = self._store.read(key)
        if entry is not None and (
            entry.state != "started" or entry.holder == holder or self._lives(entry.holder, replica)
        ):
            return Already(entry.state, entry.holder)
        self._store.write(key, _Claim("started", holder), self._ttl_ms)
        return Started(taken_over=entry is not None)

    def _finish(self, command_id: str, replica: str, holder: str, status: Status) -> LedgerState:
        key = ledger_key(command_id, replica)
        entry: _Claim | None = self._store.read(key)
        if entry is not None:
            if entry.state == "started" and holder and entry.holder != holder:
                return "started"
            if entry.state == "applied" and status == "resident":
                self._store.prolong(key, self._ttl_ms)
                return "applied"
        self._store.write(key, _Claim(status, holder), self._ttl_ms)
        return status

    async def finish(self, command_id: str, replica: str, holder: str, status: Status) -> LedgerState:
        """Write the terminal status."""
        if not holder:
            raise ValueError("a holder has a name")
        return self._finish(command_id, replica, holder, status)

    async def restore(self, entries: Iterable[tuple[str, str, Status]]) -> int:
        """Enter known outcomes."""
        return len([self._finish(command_id, replica, "", status) for command_id, replica, status in entries])

    async def read(self, command_id: str, replica: str) -> LedgerState | None:
        """What the ledger holds."""
        entry: _Claim | None = self._store.read(ledger_key(command_id, replica))
        return None if entry is None else entry.state


class MemoryLeases:
    """`Leases` in memory."""

    def __init__(self, store: MemoryStore, *, life_ms: int = LEASE_MS) -> None:
        self._store = store
        self._life_ms = life_ms

    async def acquire(self, replica: str, holder: str) -> Lease | None:
        """Take the lease."""
        lease: Lease | None = self._store.read(lease_key(replica))
        if lease is not None and lease.holder != holder:
            return None
        if lease is None:
            last = self._store.read(fence_key(replica)) or 0
            lease = Lease(replica, holder, max(self._store.now_ms(), last + 1))
            self._store.values[fence_key(replica)] = lease.token
        self._store.write(lease_key(replica), lease, self._life_ms)
        return lease

    async def renew(self, lease: Lease) -> bool:
        """Begin its life anew."""
        if self._store.read(lease_key(lease.replica)) != lease:
            return False
        self._store.write(lease_key(lease.replica), lease, self._life_ms)
        return True

    async def release(self, lease: Lease) -> bool:
        """Give it back."""
        if self._store.read(lease_key(lease.replica)) != lease:
            return False
        return self._store.drop(lease_key(lease.replica))

    async def holder(self, replica: str) -> str | None:
        """Who has it."""
        lease: Lease | None = self._store.read(lease_key(replica))
        return None if lease is None else lease.holder


class MemoryEmbeddingCache:
    """`EmbeddingCache` in memory, with RedisVL's keys and fields."""

    def __init__(self, store: MemoryStore, *, model_name: str) -> None:
        self._store = store
        self._model_name = model_name

    def _key(self, scope: str, fingerprint: str, text: str) -> str:
        return entry_key(scope, fingerprint, text, self._model_name)

    def _metadata(self, key: str) -> dict[str, str] | None:
        fields = self._store.read(key)
        return None if fields is None else {k: str(v) for k, v in json.loads(fields.get("metadata", "{}")).items()}

    async def put(
        self, scope: str, fingerprint: str, entries: Sequence[EmbeddingEntry], ttl_ms: int
    ) -> list[Literal["applied", "resident"]]:
        """Write entries."""
        now_ms = self._store.now_ms()
        written = []
        for entry in entries:
            key = self._key(scope, fingerprint, entry.text)
            fields = entry_fields(entry, key, self._model_name, now_ms)
            written.append((key, {**fields, "metadata": entry_metadata(entry, fingerprint, now_ms + ttl_ms)}))
        return [self._put(key, fields, ttl_ms) for key, fields in written]

    def _put(self, key: str, fields: dict[str, str], ttl_ms: int) -> Literal["applied", "resident"]:
        present = self._metadata(key)
        if present is None:
            self._store.write(key, fields, ttl_ms)
            return "applied"
        if present.get("source") == "warmup" and self._store.prolong(key, ttl_ms):
            self._store.read(key)["metadata"] = fields["metadata"]
        return "resident"

    async def get(self, scope: str, fingerprint: str, text: str) -> Vector | None:
        """The vector under this text."""
        fields = self._store.read(self._key(scope, fingerprint, text))
        return None if fields is None else np.asarray(json.loads(fields["embedding"]), dtype=np.float32)

    async def metadata(self, scope: str, fingerprint: str, text: str) -> dict[str, str] | None:
        """What stands beside the vector."""
        return self._metadata(self._key(scope, fingerprint, text))

    async def remaining_ms(self, scope: str, fingerprint: str, text: str) -> int | None:
        """Life left."""
        key = self._key(scope, fingerprint, text)
        if self._store.read(key) is None or key not in self._store.ends_ms:
            return None
        return self._store.ends_ms[key] - self._store.now_ms()

    async def remove(self, scope: str, fingerprint: str, texts: Sequence[str]) -> int:
        """Take entries of ours out."""
        keys = [self._key(scope, fingerprint, text) for text in texts]
        ours = [key for key in keys if (self._metadata(key) or {}).get("source") == "warmup"]
        return sum(self._store.drop(key) for key in ours)


class MemoryValues:
    """`Values` in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def put(self, scope: str, values: Mapping[str, bytes], ttl_ms: int) -> None:
        """Store values."""
        for key, value in values.items():
            self._store.write(cached_value_key(scope, key), value, ttl_ms)

    async def get(self, scope: str, keys: Sequence[str]) -> dict[str, bytes]:
        """The values that are present."""
        found = {key: self._store.read(cached_value_key(scope, key)) for key in keys}
        return {key: value for key, value in found.items() if value is not None}

    async def remaining_ms(self, scope: str, key: str) -> int | None:
        """Life left."""
        name = cached_value_key(scope, key)
        return None if self._store.read(name) is None else self._store.ends_ms[name] - self._store.now_ms()


class MemoryBrakes:
    """`Brakes` in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def tell(self, brakes: Mapping[str, bytes], life_ms: int) -> None:
        """Store what holds."""
        for replica, brake in brakes.items():
            self._store.write(brake_key(replica), brake, life_ms)

    async def told(self, replicas: Sequence[str]) -> dict[str, bytes]:
        """What holds."""
        found = {replica: self._store.read(brake_key(replica)) for replica in replicas}
        return {replica: brake for replica, brake in found.items() if brake is not None}
