"""Query vectors in Redis: `stoker:{scope}:vec:{fingerprint}:{query}`, little-endian float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import redis
import redis.asyncio

from connectors.redis.base import Vector
from connectors.redis.client import sorted_faults
from connectors.redis.keys import vector_key
from schemas.errors import DeadReason, PoisonMessage


def checked(vector: Vector, name: str) -> Vector:
    """The vector itself, if it may be stored: a failed embedding is never written (bifrost #4756).

    Raises:
        PoisonMessage: not a non-empty row of finite float32 numbers.
    """
    if vector.dtype != np.float32 or vector.ndim != 1 or vector.size == 0:
        raise PoisonMessage(DeadReason.WRONG_TYPE, name, f"a {vector.dtype} array of shape {vector.shape}")
    if not np.isfinite(vector).all():
        raise PoisonMessage(DeadReason.OUT_OF_RANGE, name, "a vector with NaN or infinity")
    return vector


def vector_bytes(vector: Vector, name: str) -> bytes:
    """A checked vector as it is stored."""
    return checked(vector, name).astype("<f4").tobytes()


def vector_of(data: bytes, name: str) -> Vector:
    """The vector again.

    Raises:
        PoisonMessage: what is stored there is no vector of ours.
    """
    if not data or len(data) % 4:
        raise PoisonMessage(DeadReason.WRONG_TYPE, name, f"{len(data)} bytes are no float32 vector")
    return checked(np.frombuffer(data, dtype="<f4").astype(np.float32), name)


def _vectors(keys: Mapping[str, str], values: Sequence[Any]) -> dict[str, Vector]:
    return {
        query: vector_of(value, key)
        for (query, key), value in zip(keys.items(), values, strict=True)
        if value is not None
    }


class RedisVectors:
    """`Vectors` on a real Redis."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def put(self, scope: str, fingerprint: str, vectors: Mapping[str, Vector], ttl_ms: int) -> None:
        """Store vectors; see `Vectors.put`."""
        values = {
            (key := vector_key(scope, fingerprint, query)): vector_bytes(vector, key)
            for query, vector in vectors.items()
        }
        if not values:
            return
        with sorted_faults("storing vectors"), self._client.pipeline(transaction=False) as pipe:
            for key, value in values.items():
                pipe.set(key, value, px=ttl_ms)
            pipe.execute()

    def get(self, scope: str, fingerprint: str, queries: Sequence[str]) -> dict[str, Vector]:
        """The vectors that are present; see `Vectors.get`."""
        keys = {query: vector_key(scope, fingerprint, query) for query in queries}
        if not keys:
            return {}
        with sorted_faults("reading vectors"):
            values: Any = self._client.mget(list(keys.values()))
        return _vectors(keys, values)


class RedisAsyncVectors:
    """`AsyncVectors` on a real Redis."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client

    async def get(self, scope: str, fingerprint: str, queries: Sequence[str]) -> dict[str, Vector]:
        """The vectors that are present; see `Vectors.get`."""
        keys = {query: vector_key(scope, fingerprint, query) for query in queries}
        if not keys:
            return {}
        with sorted_faults("reading vectors"):
            values = await self._client.mget(list(keys.values()))
        return _vectors(keys, values)
