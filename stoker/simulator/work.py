"""One request on its way through a replica, and why a replica may not take it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal

from stoker.simulator.adapters import Adapter
from stoker.simulator.blocks import Held
from stoker.simulator.chain import TOKEN_BYTES

Finish = Literal["length", "stop", "abort"]
QueueLimit = Literal["max_num_queued_reqs", "max_num_queued_tokens"]


class QueueFull(Exception):
    """A queue limit was reached. `reason` is vLLM's label of it."""

    def __init__(self, reason: QueueLimit) -> None:
        super().__init__(reason)
        self.reason: QueueLimit = reason


class AdapterFault(Exception):
    """An adapter could not be loaded. `missing` tells a path without adapter from every other cause."""

    def __init__(self, message: str, missing: bool) -> None:
        super().__init__(message)
        self.missing = missing


@dataclass(eq=False)
class Work:
    """One request. The first group is given, the rest is found out on its way.

    Args:
        prompt: token ids, four bytes each.
        answer_tokens: words to generate.
        finish: why it will end if nobody interrupts it.
        created_tokens: tokens in blocks that this request made findable and that were not so before.
        answered: words generated so far.
        outcome: how it ended; `abort` until it ends by itself.
    """

    request_id: str
    prompt: bytes = field(repr=False)
    answer_tokens: int
    finish: Finish
    adapter: Adapter | None = None
    salt: str | None = field(default=None, repr=False)
    priority: int = 0

    arrived_s: float = 0.0
    hashes: list[bytes] | None = field(default=None, repr=False)
    held: Held | None = field(default=None, repr=False)
    cached_tokens: int = 0
    created_tokens: int = 0
    answered: int = 0
    outcome: Finish = "abort"
    aborted: bool = False
    admitted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.prompt) // TOKEN_BYTES

    @property
    def adapter_name(self) -> str | None:
        """Name of the adapter, None for the base model."""
        return self.adapter.name if self.adapter else None
