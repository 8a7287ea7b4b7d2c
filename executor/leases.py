"""Leases: which replicas this executor speaks for, and the sign of life that keeps its started work its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence

from connectors.metrics import SILENT, MetricSink
from connectors.redis.base import Lease, Leases
from schemas import StackFault, StokerError, TransientFault

log = logging.getLogger(__name__)

RENEWALS_A_LIFE = 4


class LeaseKeeper:
    """Takes free leases, renews held ones, and gives them up when they can no longer be sure.

    The presence is a lease under the holder's own name: the ledger asks for it before it hands started work to another.

    Args:
        holder: name of this life of this process.
        replicas: engines to speak for, as far as nobody else does; more may come.
        life_ms: life of a lease, as the port was built with.
        gained, lost: told of every change.
        forgotten: told when Redis no longer knows our presence before its time: it has lost its data.
    """

    def __init__(
        self,
        leases: Leases,
        holder: str,
        replicas: Sequence[str],
        life_ms: int,
        gained: Callable[[str], None],
        lost: Callable[[str], None],
        forgotten: Callable[[], None],
        metrics: MetricSink = SILENT,
    ) -> None:
        self._leases = leases
        self._holder = holder
        self._replicas = dict.fromkeys(replicas)
        self._woken = asyncio.Event()
        self._life_s = life_ms / 1000
        self._gained = gained
        self._lost = lost
        self._forgotten = forgotten
        self._metrics = metrics
        self._held: dict[str, tuple[Lease, float]] = {}
        self._presence: Lease | None = None
        self._shown_at = 0.0

    def holds(self, replica: str) -> bool:
        """Whether this executor speaks for a replica."""
        return replica in self._held

    def add(self, replica: str) -> None:
        """A replica has come: its lease is taken at once if it is free."""
        self._replicas[replica] = None
        self._woken.set()

    async def remove(self, replica: str) -> None:
        """A replica has gone: its lease is given back."""
        self._replicas.pop(replica, None)
        held = self._held.get(replica)
        if held is not None:
            self._drop(replica)
            with contextlib.suppress(StokerError):
                await self._leases.release(held[0])

    async def begin(self) -> None:
        """Shows presence and takes what is free.

        Raises:
            TransientFault: Redis does not answer.
        """
        self._shown_at = time.monotonic()
        self._presence = await self._leases.acquire(self._holder, self._holder)
        await self._turn()

    async def run(self) -> None:
        """Works until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._life_s / RENEWALS_A_LIFE):
                    await self._woken.wait()
            self._woken.clear()
            try:
                await self._show_presence()
                await self._turn()
            except (TransientFault, StackFault) as fault:
                log.warning("leases not renewed: %s", fault)
                self._give_up_stale()

    async def release_all(self) -> None:
        """Gives everything back; what cannot be given back ends by itself."""
        for replica in list(self._held):
            lease, _ = self._held[replica]
            self._drop(replica)
            with contextlib.suppress(StokerError):
                await self._leases.release(lease)
        if self._presence is not None:
            with contextlib.suppress(StokerError):
                await self._leases.release(self._presence)

    async def _show_presence(self) -> None:
        before, self._shown_at = self._shown_at, time.monotonic()
        if self._presence is not None and await self._leases.renew(self._presence):
            return
        self._presence = await self._leases.acquire(self._holder, self._holder)
        if time.monotonic() - before < self._life_s:
            self._forgotten()

    async def _turn(self) -> None:
        for replica in list(self._replicas):
            asked_at = time.monotonic()
            held = self._held.get(replica)
            if held is not None:
                renewed = await self._leases.renew(held[0])
                if replica not in self._held:
                    continue  # it was removed meanwhile
                if renewed:
                    self._held[replica] = (held[0], asked_at)
                else:
                    self._drop(replica)
                continue
            lease = await self._leases.acquire(replica, self._holder) if replica in self._replicas else None
            if lease is not None and replica not in self._replicas:
                await self._leases.release(lease)
            elif lease is not None:
                self._held[replica] = (lease, asked_at)
                self._metrics.level("stoker_executor_lease_held_count", 1, replica=replica)
                self._gained(replica)

    def _give_up_stale(self) -> None:
        """A lease that was not renewed for its whole life may be another's now."""
        now = time.monotonic()
        for replica, (_, renewed_at) in list(self._held.items()):
            if now - renewed_at >= self._life_s:
                self._drop(replica)

    def _drop(self, replica: str) -> None:
        del self._held[replica]
        self._metrics.level("stoker_executor_lease_held_count", 0, replica=replica)
        self._lost(replica)
