"""Brakes in Redis: `stoker:brake:{replica}`, what the holder of its lease tells the other executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import redis.asyncio

from connectors.redis.client import sorted_faults
from connectors.redis.keys import brake_key


class RedisBrakes:
    """`Brakes` on a real Redis."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client

    async def tell(self, brakes: Mapping[str, bytes], life_ms: int) -> None:
        """Store what holds; see `Brakes.tell`."""
        if not brakes:
            return
        with sorted_faults("telling brakes"):
            async with self._client.pipeline(transaction=False) as pipe:
                for replica, brake in brakes.items():
                    pipe.set(brake_key(replica), brake, px=life_ms)
                await pipe.execute()

    async def told(self, replicas: Sequence[str]) -> dict[str, bytes]:
        """What holds; see `Brakes.told`."""
        if not replicas:
            return {}
        with sorted_faults("reading brakes"):
            found: Any = await self._client.mget([brake_key(replica) for replica in replicas])
        return {replica: brake for replica, brake in zip(replicas, found, strict=True) if brake is not None}
