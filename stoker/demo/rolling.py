"""A rolling restart: one replica after the other gets no requests, is restarted by the demo, and comes back empty."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

import httpx

from stoker.demo.effect import Restart
from stoker.replay.gateway import Gateway

LOOK_EVERY_S = 0.1
GIVE_UP_S = 60.0


class RollingRestart:
    """Takes replicas out of a gateway's choice, each at its time, until they have gone and come back.

    Whoever reads `Gateway.resting` restarts them; this only looks.

    Args:
        engines: base URL of each replica.
        plan: seconds from the start, and the replica.
    """

    def __init__(self, gateway: Gateway, engines: Mapping[str, str], plan: Sequence[tuple[float, str]]) -> None:
        self._gateway = gateway
        self._engines = engines
        self._plan = sorted(plan)
        self.done: list[Restart] = []

    async def run(self) -> None:
        """Carries the plan out."""
        begin = time.monotonic()
        async with httpx.AsyncClient(timeout=2.0, trust_env=False) as client:
            for at_s, replica in self._plan:
                await asyncio.sleep(max(0.0, begin + at_s - time.monotonic()))
                self._gateway.resting.add(replica)
                await self._until(client, replica, alive=False)
                await self._until(client, replica, alive=True)
                self.done.append(Restart(time.time_ns() // 1_000_000, replica))
                self._gateway.resting.discard(replica)

    async def _until(self, client: httpx.AsyncClient, replica: str, alive: bool) -> None:
        deadline = time.monotonic() + GIVE_UP_S
        while time.monotonic() < deadline:
            try:
                found = (await client.get(f"{self._engines[replica]}/health")).status_code == 200
            except httpx.HTTPError:
                found = False
            if found == alive:
                return
            await asyncio.sleep(LOOK_EVERY_S)
