"""Leases in Redis: `stoker:lease:{replica}`, 10 s, with fencing tokens."""

from __future__ import annotations

import redis.asyncio

from connectors.redis.base import Lease
from connectors.redis.client import lua, sorted_faults
from connectors.redis.keys import fence_key, lease_key

LEASE_MS = 10_000
FENCE_TTL_MS = 24 * 3_600_000
"""Far longer than two clocks could differ; after that the clock alone makes tokens grow."""


class RedisLeases:
    """`Leases` on a real Redis.

    Args:
        life_ms: how long a lease lives without being renewed.
    """

    def __init__(self, client: redis.asyncio.Redis, *, life_ms: int = LEASE_MS) -> None:
        self._client = client
        self._life_ms = life_ms
        self._acquire = client.register_script(lua("lease_acquire"))
        self._keep = client.register_script(lua("lease_keep"))

    async def acquire(self, replica: str, holder: str) -> Lease | None:
        """Take the lease; see `Leases.acquire`."""
        with sorted_faults("acquiring a lease"):
            token = await self._acquire(
                keys=[lease_key(replica), fence_key(replica)], args=[holder, self._life_ms, FENCE_TTL_MS]
            )
        return None if token is None else Lease(replica, holder, int(token))

    async def renew(self, lease: Lease) -> bool:
        """Begin its life anew; see `Leases.renew`."""
        with sorted_faults("renewing a lease"):
            return await self._kept(lease, self._life_ms)

    async def release(self, lease: Lease) -> bool:
        """Give it back; see `Leases.release`."""
        with sorted_faults("releasing a lease"):
            return await self._kept(lease, 0)

    async def _kept(self, lease: Lease, life_ms: int) -> bool:
        kept = await self._keep(keys=[lease_key(lease.replica)], args=[lease.holder, lease.token, life_ms])
        return bool(kept == 1)

    async def holder(self, replica: str) -> str | None:
        """Who has it."""
        with sorted_faults("reading a lease"):
            holder = await self._client.hget(lease_key(replica), "holder")  # type: ignore[misc]
        return None if holder is None else str(holder.decode())
