"""A source of replicas that a test speaks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from connectors.discovery.base import Endpoint
from connectors.discovery.clock import REAL, Clock
from connectors.discovery.kept import Kept
from connectors.metrics import SILENT, MetricSink

EVERY_S = 1.0


class FakeDiscovery:
    """`Discovery` in memory.

    Args:
        keep_s: how long what is known stays known while it is away, or while it names nobody any more.

    Attributes:
        closed: whether it was let go.
    """

    def __init__(
        self, *endpoints: Endpoint, keep_s: float = 0.0, clock: Clock = REAL, metrics: MetricSink = SILENT
    ) -> None:
        self.closed = False
        self._keep_s = keep_s
        self._clock = clock
        self._metrics = metrics
        self._endpoints = {endpoint.name: endpoint for endpoint in endpoints}
        self._faults: int | None = 0
        self._changed = asyncio.Event()

    def put(self, endpoint: Endpoint) -> None:
        """A replica comes, or is another than before: it drains, or has moved."""
        self._endpoints[endpoint.name] = endpoint
        self._changed.set()

    def remove(self, name: str) -> None:
        """A replica goes."""
        del self._endpoints[name]
        self._changed.set()

    def away(self, answers: int | None) -> None:
        """It fails the next so many times; None for ever."""
        self._faults = answers
        self._changed.set()

    async def lists(self) -> AsyncGenerator[tuple[Endpoint, ...], None]:
        """See `Discovery.lists`."""
        kept = Kept("fake", self._keep_s, self._clock, self._metrics)
        while True:
            self._changed.clear()
            if self._faults is None or self._faults > 0:
                self._faults = None if self._faults is None else self._faults - 1
                changed = kept.failed("told to fail")
            else:
                changed = kept.answered(tuple(sorted(self._endpoints.values())))
            if changed and kept.told is not None:
                yield kept.told
            elif kept.doubted:
                await self._clock.pause(EVERY_S)
            else:
                await self._changed.wait()

    async def close(self) -> None:
        """Nothing to let go."""
        self.closed = True
