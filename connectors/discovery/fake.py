"""A source of replicas that a test speaks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from connectors.discovery.base import Endpoint


class FakeDiscovery:
    """`Discovery` in memory."""

    def __init__(self, *endpoints: Endpoint) -> None:
        self._endpoints = {endpoint.name: endpoint for endpoint in endpoints}
        self._changed = asyncio.Event()

    def put(self, endpoint: Endpoint) -> None:
        """A replica comes, or is another than before: it drains, or has moved."""
        self._endpoints[endpoint.name] = endpoint
        self._changed.set()

    def remove(self, name: str) -> None:
        """A replica goes."""
        del self._endpoints[name]
        self._changed.set()

    def forget(self) -> None:
        """The source was away for too long."""
        self._endpoints.clear()
        self._changed.set()

    async def lists(self) -> AsyncGenerator[tuple[Endpoint, ...], None]:
        """See `Discovery.lists`."""
        told: tuple[Endpoint, ...] | None = None
        while True:
            self._changed.clear()
            known = tuple(sorted(self._endpoints.values()))
            if known != told:
                told = known
                yield known
            await self._changed.wait()

    async def close(self) -> None:
        """Nothing to let go."""
