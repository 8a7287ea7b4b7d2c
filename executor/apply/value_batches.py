"""Keys that are asked for at about the same time share one call of their loader."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from connectors.values.base import KeyFault, Loader


@dataclass(eq=False)
class _Batch:
    scope: str
    waiting: dict[str, asyncio.Future[bytes | KeyFault]] = field(default_factory=dict)
    full: asyncio.Event = field(default_factory=asyncio.Event)


class Batches:
    """Gathers keys by scope, and asks a loader for each batch.

    Args:
        most: keys in one call.
        gather_ms: how long the first key of a batch waits for others.
    """

    def __init__(self, loader: Loader, most: int, gather_ms: int) -> None:
        self._loader = loader
        self._most = most
        self._gather_s = gather_ms / 1000
        self._open: dict[str, _Batch] = {}
        self._calls: set[asyncio.Task[None]] = set()

    async def load(self, scope: str, key: str) -> bytes | KeyFault:
        """The value of one key, or why it has none. Being cancelled ends the waiting, not the call of the others.

        Raises:
            TransientFault, RefusedCommand: as the loader.
        """
        batch = self._open.get(scope)
        if batch is None:
            batch = self._open[scope] = _Batch(scope)
            call = asyncio.create_task(self._fetch(batch), name=f"batch of {scope}")
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        future = batch.waiting.get(key)
        if future is None:
            future = batch.waiting[key] = asyncio.get_running_loop().create_future()
        if len(batch.waiting) >= self._most:
            self._close(batch)
        return await asyncio.shield(future)

    def _close(self, batch: _Batch) -> None:
        """Lets no further key in."""
        batch.full.set()
        if self._open.get(batch.scope) is batch:
            del self._open[batch.scope]

    async def _fetch(self, batch: _Batch) -> None:
        try:
            async with asyncio.timeout(self._gather_s):
                await batch.full.wait()
        except TimeoutError:
            self._close(batch)
        keys = list(batch.waiting)
        try:
            loaded = await self._loader.load(batch.scope, keys)
        except Exception as fault:
            for future in batch.waiting.values():
                future.set_exception(fault)
                # Who asked may be gone.
                future.exception()
            return
        for key, future in batch.waiting.items():
            value = loaded.values.get(key)
            future.set_result(loaded.faults.get(key, "not_found") if value is None else value)
