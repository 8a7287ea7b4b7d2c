"""The ledger in Redis: `stoker:ledger:{command_id}:{replica}`, two phases, every step one Lua script."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from itertools import islice
from typing import Any, cast

import redis.asyncio

from connectors.redis.base import Already, LedgerState, Started
from connectors.redis.client import lua, sorted_faults
from connectors.redis.keys import lease_key, ledger_key
from schemas.warmup_outcome import Status

LEDGER_TTL_MS = 6 * 3_600_000
"""As long as warmup.commands keeps a command that could come again."""
RESTORE_BATCH = 1_000


class RedisLedger:
    """`Ledger` on a real Redis.

    Args:
        ttl_ms: life of an entry after its last change.
    """

    def __init__(self, client: redis.asyncio.Redis, *, ttl_ms: int = LEDGER_TTL_MS) -> None:
        self._client = client
        self._ttl_ms = ttl_ms
        self._begin = client.register_script(lua("ledger_begin"))
        self._finish = client.register_script(lua("ledger_finish"))

    async def begin(self, command_id: str, replica: str, holder: str) -> Started | Already:
        """Claim a command; see `Ledger.begin`."""
        attempt = uuid.uuid4().hex
        with sorted_faults("beginning a command"):
            answer: Any = await self._begin(
                keys=[ledger_key(command_id, replica), lease_key(replica)],
                args=[holder, attempt, self._ttl_ms, lease_key(holder)],
            )
        if answer[0] == 1:
            return Started(taken_over=answer[1] == 1)
        return Already(cast(LedgerState, answer[1].decode()), answer[2].decode())

    async def finish(self, command_id: str, replica: str, holder: str, status: Status) -> LedgerState:
        """Write the terminal status; see `Ledger.finish`."""
        if not holder:
            raise ValueError("a holder has a name")
        with sorted_faults("finishing a command"):
            state = await self._finish(keys=[ledger_key(command_id, replica)], args=[holder, status, self._ttl_ms])
        return cast(LedgerState, state.decode())

    async def restore(self, entries: Iterable[tuple[str, str, Status]]) -> int:
        """Enter known outcomes; see `Ledger.restore`."""
        remaining = iter(entries)
        restored = 0
        while chunk := list(islice(remaining, RESTORE_BATCH)):
            with sorted_faults("restoring the ledger"):
                async with self._client.pipeline(transaction=False) as pipe:
                    for command_id, replica, status in chunk:
                        await self._finish(
                            keys=[ledger_key(command_id, replica)], args=["", status, self._ttl_ms], client=pipe
                        )
                    await pipe.execute()
            restored += len(chunk)
        return restored

    async def read(self, command_id: str, replica: str) -> LedgerState | None:
        """What the ledger holds; see `Ledger.read`."""
        with sorted_faults("reading the ledger"):
            state = await self._client.hget(ledger_key(command_id, replica), "state")  # type: ignore[misc]
        return None if state is None else cast(LedgerState, state.decode())
