"""The semantic cache in memory, with RedisVL's keys and fields."""

from __future__ import annotations

from typing import Any

import numpy as np

from connectors.redis.base import Vector
from connectors.redis.fake import MemoryStore
from connectors.redis.keys import is_semantic_cache, revoked_key, semantic_cache_name
from connectors.redis.semantic import SAME_QUERY_DISTANCE, Answer, CacheName, HeldAnswer, Put
from connectors.redis.semantic_cache import REVOKED_MS
from connectors.redis.semantic_layout import DECIDED, END, entry_of, held_of
from connectors.redis.vectors import vector_of
from schemas.canonical import h128
from schemas.errors import RefusedCommand


def _index(name: CacheName) -> str:
    return semantic_cache_name(name.scope, name.cache, name.fingerprint)


class MemorySemanticCache:
    """`SemanticCache` in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def _entries(self, index: str) -> dict[str, dict[str, Any]]:
        keys = [key for key in self._store.values if key.startswith(f"{index}:")]
        return {key: fields for key in keys if (fields := self._store.read(key)) is not None}

    async def put(self, name: CacheName, answer: Answer) -> Put:
        """Writes an answer."""
        entry = entry_of(name, answer, self._store.now_ms())
        dimension = self._store.read(_index(name)) or answer.vector.size
        if dimension != answer.vector.size:
            raise RefusedCommand(f"vectors of {dimension} numbers, not {answer.vector.size}", "index_mismatch")
        self._store.values[_index(name)] = dimension
        before = [held for held in await self.find(name, answer.query_sha256) if held.same_place(answer)]
        if any(held.issued_at_ms > answer.issued_at_ms for held in before):
            return "resident"
        for sha in (None, h128(answer.response)):
            mark = revoked_key(name.scope, name.cache, name.fingerprint, answer.query_sha256, sha)
            if (self._store.read(mark) or -1) >= answer.issued_at_ms:
                return "revoked"
        for held in before:
            if held.key != entry.key:
                self._store.drop(held.key)
        return self._put(entry.key, dict(entry.fields), answer)

    def _put(self, key: str, fields: dict[str, Any], answer: Answer) -> Put:
        held = self._store.read(key)
        life_ms = answer.until_ms - self._store.now_ms()
        if held is not None and held["response"] == answer.response and END in held:
            held |= {END: fields[END], DECIDED: fields[DECIDED]}
            self._store.ends_ms[key] = answer.until_ms
            return "resident"
        self._store.write(key, fields, life_ms)
        return "applied"

    async def find(self, name: CacheName, query: str) -> list[HeldAnswer]:
        """The entries of one query."""
        held = [held_of(key, fields) for key, fields in self._entries(_index(name)).items()]
        return [entry for entry in held if entry.ours and entry.fields.get("query_sha256") == query]

    async def nearest(self, name: CacheName, vector: Vector, distance: float, count: int = 1) -> list[HeldAnswer]:
        """What a gateway would be given."""
        found = []
        for key, fields in self._entries(_index(name)).items():
            other = vector_of(fields["prompt_vector"], key)
            if other.size == vector.size:
                away = 1 - float(vector @ other) / (float(np.linalg.norm(vector) * np.linalg.norm(other)) or 1.0)
                found.append((away, held_of(key, fields)))
        found.sort(key=lambda pair: pair[0])
        return [entry for away, entry in found if away <= distance][:count]

    async def revoke(
        self, name: CacheName, query: str, at_ms: int, response_sha256: str | None = None, vector: Vector | None = None
    ) -> int:
        """Takes answers out."""
        mark = revoked_key(name.scope, name.cache, name.fingerprint, query, response_sha256)
        self._store.write(mark, max(at_ms, self._store.read(mark) or -1), REVOKED_MS)
        held = {entry.key: entry for entry in await self.find(name, query)}
        if vector is not None:
            near = await self.nearest(name, vector, SAME_QUERY_DISTANCE, len(self._store.values))
            held |= {entry.key: entry for entry in near if entry.query_sha256 == query}
        bad = [key for key, entry in held.items() if response_sha256 in (None, entry.response_sha256)]
        return sum(self._store.drop(key) for key in bad)

    async def sweep(self, now_ms: int) -> int:
        """Takes out what has ended."""
        self._store.read("")
        indexes = [key for key in self._store.values if is_semantic_cache(key)]
        ended = [
            key
            for index in indexes
            for key, fields in self._entries(index).items()
            if fields.get("source") == "warmup" and int(fields[END]) <= now_ms
        ]
        return sum(self._store.drop(key) for key in ended)
