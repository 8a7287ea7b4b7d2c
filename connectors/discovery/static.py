"""A fixed list of replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable

from connectors.discovery.base import Endpoint


class StaticDiscovery:
    """`Discovery` of what was known from the start."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._endpoints = tuple(sorted(endpoints))

    async def lists(self) -> AsyncGenerator[tuple[Endpoint, ...], None]:
        """The one list."""
        yield self._endpoints
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Nothing to let go."""
