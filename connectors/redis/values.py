"""Business values in Redis: `stoker:{scope}:value:{key}`, as their source gave them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import redis.asyncio

from connectors.redis.client import sorted_faults
from connectors.redis.keys import cached_value_key


class RedisValues:
    """`Values` on a real Redis."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client

    async def put(self, scope: str, values: Mapping[str, bytes], ttl_ms: int) -> None:
        """Store values; see `Values.put`."""
        if not values:
            return
        with sorted_faults("storing values"):
            async with self._client.pipeline(transaction=False) as pipe:
                for key, value in values.items():
                    pipe.set(cached_value_key(scope, key), value, px=ttl_ms)
                await pipe.execute()

    async def get(self, scope: str, keys: Sequence[str]) -> dict[str, bytes]:
        """The values that are present; see `Values.get`."""
        if not keys:
            return {}
        with sorted_faults("reading values"):
            found: Any = await self._client.mget([cached_value_key(scope, key) for key in keys])
        return {key: value for key, value in zip(keys, found, strict=True) if value is not None}

    async def remaining_ms(self, scope: str, key: str) -> int | None:
        """Life left; see `Values.remaining_ms`."""
        with sorted_faults("reading a value's life"):
            left: int = await self._client.pttl(cached_value_key(scope, key))
        return left if left >= 0 else None
