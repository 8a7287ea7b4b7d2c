"""The embedding cache that gateways read, in the layout of RedisVL's `EmbeddingsCache` (reference: redisvl 0.26).

HASH `{name}:{sha256(text:model)}` with entry_id, content, model_name, embedding (JSON list), inserted_at (unix seconds)
and metadata (JSON). RedisVL's own bulk write sends EXPIRE afterwards, one key at a time, so a crash leaves entries that
never end; here each entry and its end are one step.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import redis.asyncio

from connectors.redis.base import EmbeddingEntry, Vector
from connectors.redis.client import lua, sorted_faults
from connectors.redis.keys import embedding_cache_name
from connectors.redis.vectors import checked
from schemas.errors import DeadReason, PoisonMessage


def entry_key(scope: str, fingerprint: str, text: str, model_name: str) -> str:
    """The key under which RedisVL looks for this text."""
    entry_id = hashlib.sha256(f"{text}:{model_name}".encode()).hexdigest()
    return f"{embedding_cache_name(scope, fingerprint)}:{entry_id}"


def entry_fields(entry: EmbeddingEntry, key: str, model_name: str, now_ms: int) -> dict[str, str]:
    """The fields of one entry, without its metadata."""
    return {
        "entry_id": key.rpartition(":")[2],
        "content": entry.text,
        "model_name": model_name,
        "embedding": json.dumps(checked(entry.vector, key).tolist()),
        "inserted_at": repr(now_ms / 1000),
    }


def entry_metadata(entry: EmbeddingEntry, fingerprint: str, expires_at_ms: int) -> str:
    """What stands beside the vector, as JSON; `"source": "warmup"` is what the scripts recognise our entries by."""
    own = {
        "source": "warmup",
        "fingerprint": fingerprint,
        "command_id": entry.command_id,
        "expires_at_ms": str(expires_at_ms),
    }
    return json.dumps({**entry.labels, **own})


class RedisEmbeddingCache:
    """`EmbeddingCache` on a real Redis.

    Args:
        model_name: the name under which readers ask for this encoder (`encoder.model_name`).
        now_ms: the clock that `inserted_at` and `expires_at_ms` are read from.
    """

    def __init__(self, client: redis.asyncio.Redis, *, model_name: str, now_ms: Callable[[], int]) -> None:
        self._client = client
        self._model_name = model_name
        self._now_ms = now_ms
        self._put = client.register_script(lua("embedding_put"))
        self._remove = client.register_script(lua("embedding_remove"))

    def _key(self, scope: str, fingerprint: str, text: str) -> str:
        return entry_key(scope, fingerprint, text, self._model_name)

    async def put(
        self, scope: str, fingerprint: str, entries: Sequence[EmbeddingEntry], ttl_ms: int
    ) -> list[Literal["applied", "resident"]]:
        """Write entries; see `EmbeddingCache.put`."""
        if not entries:
            return []
        now_ms = self._now_ms()
        calls: list[tuple[str, list[str | int]]] = []
        for entry in entries:
            key = self._key(scope, fingerprint, entry.text)
            fields = entry_fields(entry, key, self._model_name, now_ms)
            metadata = entry_metadata(entry, fingerprint, now_ms + ttl_ms)
            calls.append((key, [ttl_ms, metadata, *(item for pair in fields.items() for item in pair)]))
        with sorted_faults("writing embeddings"):
            async with self._client.pipeline(transaction=False) as pipe:
                for key, arguments in calls:
                    await self._put(keys=[key], args=arguments, client=pipe)
                written = await pipe.execute()
        return ["applied" if fresh == 1 else "resident" for fresh in written]

    async def get(self, scope: str, fingerprint: str, text: str) -> Vector | None:
        """The vector under this text; see `EmbeddingCache.get`."""
        key = self._key(scope, fingerprint, text)
        with sorted_faults("reading an embedding"):
            listed = await self._client.hget(key, "embedding")  # type: ignore[misc]
        if listed is None:
            return None
        try:
            return np.asarray(json.loads(listed), dtype=np.float32)
        except (ValueError, TypeError) as fault:
            raise PoisonMessage(DeadReason.WRONG_TYPE, key, "no list of numbers") from fault

    async def metadata(self, scope: str, fingerprint: str, text: str) -> dict[str, str] | None:
        """What stands beside the vector; see `EmbeddingCache.metadata`."""
        key = self._key(scope, fingerprint, text)
        with sorted_faults("reading an embedding's metadata"):
            stored: Any = await self._client.hmget(key, ["entry_id", "metadata"])  # type: ignore[misc]
        if stored[0] is None:
            return None
        return {name: str(value) for name, value in json.loads(stored[1] or b"{}").items()}

    async def remaining_ms(self, scope: str, fingerprint: str, text: str) -> int | None:
        """Life left; see `EmbeddingCache.remaining_ms`."""
        with sorted_faults("reading an embedding's life"):
            left: int = await self._client.pttl(self._key(scope, fingerprint, text))
        return left if left >= 0 else None

    async def remove(self, scope: str, fingerprint: str, texts: Sequence[str]) -> int:
        """Take entries of ours out; see `EmbeddingCache.remove`."""
        with sorted_faults("removing embeddings"):
            return sum([await self._remove(keys=[self._key(scope, fingerprint, text)]) for text in texts])
