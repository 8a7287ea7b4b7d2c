"""The sweeper: takes answers out of the semantic caches when their absolute end has come.

A hit of RedisVL renews an entry's time to live with no way to switch that off, so that the most popular answer would
grow the stalest. One executor of a pool sweeps at a time; when it dies the next one takes over within `LEASE_MS`, which
keeps the promise of five seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from connectors.metrics import SILENT, MetricSink
from connectors.redis.base import Lease, Leases
from connectors.redis.semantic import SemanticCache
from schemas import RefusedCommand, StackFault, StokerError, TransientFault

log = logging.getLogger(__name__)

PERIOD_S = 1.0
LEASE_MS = 3_000
PAUSE_WITHOUT_SEARCH_S = 60.0


class Sweeper:
    """Sweeps the caches of one Redis, while it holds the lease for it.

    Args:
        pool: name of the Redis pool. holder: name of this life of this process.
        leases: with a life of `LEASE_MS`.
    """

    def __init__(
        self,
        pool: str,
        holder: str,
        cache: SemanticCache,
        leases: Leases,
        now_ms: Callable[[], int],
        metrics: MetricSink = SILENT,
    ) -> None:
        self._pool = pool
        self._holder = holder
        self._cache = cache
        self._leases = leases
        self._now_ms = now_ms
        self._metrics = metrics
        self._lease: Lease | None = None

    async def run(self) -> None:
        """Works until cancelled."""
        while True:
            pause_s = PERIOD_S
            try:
                await self._turn()
            except (TransientFault, StackFault) as fault:
                log.warning("answers not swept: %s", fault)
            except RefusedCommand as refusal:
                log.warning("answers cannot be swept: %s", refusal)
                pause_s = PAUSE_WITHOUT_SEARCH_S
            await asyncio.sleep(pause_s)

    async def _turn(self) -> None:
        # Taking what is one's own already renews it.
        self._lease = await self._leases.acquire(f"sweep:{self._pool}", self._holder)
        if self._lease is None:
            return
        removed = await self._cache.sweep(self._now_ms())
        if removed:
            self._metrics.count("stoker_executor_swept_answers_total", removed, pool=self._pool)

    async def end(self) -> None:
        """Gives the lease back, so that the next one begins at once."""
        if self._lease is not None:
            with contextlib.suppress(StokerError):
                await self._leases.release(self._lease)
