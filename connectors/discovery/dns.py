"""Replicas from DNS: the addresses of a name, looked up again and again."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

from connectors.discovery.base import Endpoint
from connectors.discovery.clock import REAL, Clock
from connectors.discovery.kept import Kept
from connectors.discovery.settings import DnsSettings
from connectors.metrics import SILENT, MetricSink
from schemas.errors import TransientFault

LOOKUP_S = 5.0

Resolve = Callable[[str], Awaitable[Iterable[str]]]
"""The addresses of a name, at least one; raises OSError where there are none or nobody answers."""


class DnsDiscovery:
    """`Discovery` by A and AAAA records.

    A name without addresses and a name server without an answer are one and the same here: a headless service whose
    last pod has just gone looks like one that is misspelt. Either way what is known stays for a while.

    Args:
        keep_s: how long.
        resolve: looks a name up; the system's resolver by default.
    """

    def __init__(
        self,
        settings: DnsSettings,
        keep_s: float,
        resolve: Resolve | None = None,
        clock: Clock = REAL,
        metrics: MetricSink = SILENT,
    ) -> None:
        self._settings = settings
        self._keep_s = keep_s
        self._resolve = resolve or _by_the_system
        self._clock = clock
        self._metrics = metrics

    async def lists(self) -> AsyncGenerator[tuple[Endpoint, ...], None]:
        """See `Discovery.lists`."""
        kept = Kept(self._settings.host, self._keep_s, self._clock, self._metrics)
        while True:
            try:
                changed = kept.answered(await self._look_up())
            except TransientFault as fault:
                changed = kept.failed(str(fault))
            if changed and kept.told is not None:
                yield kept.told
            await self._clock.pause(self._settings.every_s)

    async def _look_up(self) -> tuple[Endpoint, ...]:
        """
        Raises:
            TransientFault: there was no address.
        """
        host = self._settings.host
        try:
            async with asyncio.timeout(LOOKUP_S):
                addresses = {ipaddress.ip_address(text) for text in await self._resolve(host)}
        except TimeoutError:
            raise TransientFault(f"DNS does not answer for {host} in {LOOKUP_S:.0f} s") from None
        except (OSError, ValueError) as fault:
            raise TransientFault(f"DNS gives no addresses of {host}: {fault}") from None
        # In a network with both, a replica has one of each: it must not be taken for two.
        version = min((address.version for address in addresses), default=4)
        return tuple(sorted(self._endpoint(address) for address in addresses if address.version == version))

    def _endpoint(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> Endpoint:
        place = f"[{address}]" if address.version == 6 else str(address)
        name = f"{place}:{self._settings.port}"
        return Endpoint(name, f"{self._settings.scheme}://{name}", self._settings.zone)

    async def close(self) -> None:
        """Nothing to let go."""


async def _by_the_system(host: str) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]
