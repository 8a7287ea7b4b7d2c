"""Texts that a warm-up will need: put into Redis before the event that names them, under the tenant's scope."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

from connectors.redis.base import Blobs


class FreshBlobs:
    """Puts every (scope, hash) once per half of its life, so that what is asked for often stays without a write each.

    Args:
        store: where they go; it blocks, so it is called in a thread.
        ttl_ms: life of a text from its last write.
        kept: how many are remembered as fresh.
        clock_ms: monotonic milliseconds.
    """

    def __init__(
        self,
        store: Blobs,
        ttl_ms: int,
        kept: int = 100_000,
        clock_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
    ) -> None:
        self._store = store
        self._ttl_ms = ttl_ms
        self._kept = kept
        self._clock_ms = clock_ms
        self._renew_at: OrderedDict[tuple[str, str], float] = OrderedDict()

    async def put(self, scope: str, texts: Mapping[str, str]) -> None:
        """Make sure that these texts live for at least half of their full life from now on.

        Raises:
            TransientFault: Redis does not answer or is full. PoisonMessage: a text is longer than 1 MiB.
        """
        now = self._clock_ms()
        due = {name: text for name, text in texts.items() if self._renew_at.get((scope, name), 0.0) <= now}
        if not due:
            return
        packed = {name: text.encode() for name, text in due.items()}
        await asyncio.to_thread(self._store.put, scope, packed, self._ttl_ms)
        for name in due:
            self._renew_at[scope, name] = now + self._ttl_ms / 2
            self._renew_at.move_to_end((scope, name))
        while len(self._renew_at) > self._kept:
            self._renew_at.popitem(last=False)
