"""Texts that a warm-up will need: put into Redis before the event that names them, under the tenant's scope."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol


class BlobWriter(Protocol):
    """Stores texts, content-addressed by segment hash, in one scope; see `connectors.redis` for the real one."""

    async def put(self, scope: str, texts: Mapping[str, str], ttl_s: float) -> None:
        """Store or renew. Raises TransientFault where the store does not answer."""


class FreshBlobs:
    """Puts every (scope, hash) once per half of its life, so that what is asked for often stays without a write each.

    Args:
        writer: where they go.
        ttl_s: life of a text from its last write.
        kept: how many are remembered as fresh.
        clock_s: monotonic seconds.
    """

    def __init__(
        self, writer: BlobWriter, ttl_s: float, kept: int = 100_000, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._writer = writer
        self._ttl_s = ttl_s
        self._kept = kept
        self._clock_s = clock_s
        self._renew_at: OrderedDict[tuple[str, str], float] = OrderedDict()
        self.written = 0

    async def put(self, scope: str, texts: Mapping[str, str]) -> None:
        """Make sure that these texts live for at least half of their full life from now on."""
        now = self._clock_s()
        due = {name: text for name, text in texts.items() if self._renew_at.get((scope, name), 0.0) <= now}
        if not due:
            return
        await self._writer.put(scope, due, self._ttl_s)
        self.written += len(due)
        for name in due:
            self._renew_at[scope, name] = now + self._ttl_s / 2
            self._renew_at.move_to_end((scope, name))
        while len(self._renew_at) > self._kept:
            self._renew_at.popitem(last=False)
