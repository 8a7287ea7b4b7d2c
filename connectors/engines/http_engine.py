"""What every engine over HTTP has: a client of its own, and a moment at which all that it knows is void."""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypedDict, Unpack

import httpx

from connectors.engines.base import EngineMetrics
from connectors.engines.http import EngineHttp, Unanswered
from schemas.errors import TransientFault


class Client(TypedDict, total=False):
    """How its client is made.

    Attributes:
        timeout_s: how long a call waits when its own `timeout_s` is None.
        headers: sent with every request, such as an authorization; never logged.
        max_connections: calls that wait at the same time beyond this queue up on this side.
        transport: another httpx transport, for tests.
        tls: who is trusted at https; certifi's authorities if None.
    """

    timeout_s: float
    headers: Mapping[str, str] | None
    max_connections: int
    transport: httpx.AsyncBaseTransport | None
    tls: ssl.SSLContext | None


class HttpEngine(ABC):
    """One replica that is spoken to over HTTP.

    Args:
        url: base URL, without a path.
        client: see `Client`.
    """

    def __init__(self, url: str, **client: Unpack[Client]) -> None:
        self._http = EngineHttp(url, on_refused=self._forget, **client)
        self.url = self._http.url

    @abstractmethod
    def _forget(self) -> None:
        """A connection was refused: what listens there next may be another version, or have other flags."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @asynccontextmanager
    async def _within(self, timeout_s: float | None) -> AsyncIterator[None]:
        """One deadline over several calls; None for each call's own.

        Raises:
            TransientFault: it passed.
        """
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except TimeoutError as late:
            raise Unanswered(f"{self.url} did not answer all within {timeout_s:g} s") from late

    def _parsed(self, path: str, page: str, parse: Callable[[str], EngineMetrics]) -> EngineMetrics:
        """What a page of metrics tells.

        Raises:
            TransientFault: it is no Prometheus text.
        """
        try:
            return parse(page)
        except (ValueError, OverflowError) as fault:
            raise TransientFault(f"{self.url}{path} is not Prometheus text: {fault}") from fault

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()
