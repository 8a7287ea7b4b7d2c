"""A source in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from connectors.values.base import KeyFault, Loaded
from connectors.values.texts import sorted_out, stored_form
from schemas.errors import RefusedCommand, TransientFault


@dataclass
class FakeLoader:
    """`Loader` on a dictionary by scope and key.

    Attributes:
        faults: keys that fail, and how.
        offline, refuses: whether the source is down, or says no.
        delay_s: how long a call takes.
        calls: scope and keys of each call.
    """

    values: dict[tuple[str, str], Any] = field(default_factory=dict)
    faults: dict[str, KeyFault] = field(default_factory=dict)
    offline: bool = False
    refuses: bool = False
    delay_s: float = 0.0
    calls: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    async def load(self, scope: str, keys: Sequence[str]) -> Loaded:
        """The values of these keys."""
        self.calls.append((scope, tuple(keys)))
        await asyncio.sleep(self.delay_s)
        if self.offline:
            raise TransientFault("the source is offline")
        if self.refuses:
            raise RefusedCommand("the source says no", "loader_failed")
        return sorted_out({key: self.faults.get(key) or stored_form(self.values.get((scope, key))) for key in keys})

    async def close(self) -> None:
        """Nothing to let go."""
