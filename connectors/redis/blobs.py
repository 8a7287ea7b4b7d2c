"""Texts in Redis: `stoker:{scope}:blob:{hash}`, zstd, content-addressed, prolonged but never shortened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import redis
import redis.asyncio

from connectors.redis.client import sorted_faults
from connectors.redis.compression import packed, unpacked
from connectors.redis.keys import blob_key


def _texts(scope: str, hashes: Sequence[str], frames: Sequence[Any]) -> dict[str, bytes]:
    return {
        content_hash: unpacked(frame, blob_key(scope, content_hash))
        for content_hash, frame in zip(hashes, frames, strict=True)
        if frame is not None
    }


class RedisBlobs:
    """`Blobs` on a real Redis."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def put(self, scope: str, blobs: Mapping[str, bytes], ttl_ms: int) -> None:
        """Store texts; see `Blobs.put`."""
        frames = {blob_key(scope, h): packed(text, blob_key(scope, h)) for h, text in blobs.items()}
        if not frames:
            return
        with sorted_faults("storing blobs"), self._client.pipeline(transaction=False) as pipe:
            for key, frame in frames.items():
                pipe.set(key, frame, px=ttl_ms, nx=True)
                pipe.pexpire(key, ttl_ms, gt=True)
            pipe.execute()

    def get(self, scope: str, hashes: Sequence[str]) -> dict[str, bytes]:
        """The texts that are present; see `Blobs.get`."""
        if not hashes:
            return {}
        with sorted_faults("reading blobs"):
            frames: Any = self._client.mget([blob_key(scope, h) for h in hashes])
        return _texts(scope, hashes, frames)


class RedisAsyncBlobs:
    """`AsyncBlobs` on a real Redis."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client

    async def get(self, scope: str, hashes: Sequence[str]) -> dict[str, bytes]:
        """The texts that are present; see `Blobs.get`."""
        if not hashes:
            return {}
        with sorted_faults("reading blobs"):
            frames = await self._client.mget([blob_key(scope, h) for h in hashes])
        return _texts(scope, hashes, frames)

    async def renew(self, scope: str, hashes: Sequence[str], ttl_ms: int) -> frozenset[str]:
        """Prolong; see `AsyncBlobs.renew`."""
        if not hashes:
            return frozenset()
        with sorted_faults("renewing blobs"):
            async with self._client.pipeline(transaction=False) as pipe:
                for content_hash in hashes:
                    pipe.pexpire(blob_key(scope, content_hash), ttl_ms, gt=True)
                    pipe.exists(blob_key(scope, content_hash))
                answers = await pipe.execute()
        return frozenset(h for h, present in zip(hashes, answers[1::2], strict=True) if present)
