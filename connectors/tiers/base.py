"""The port of a KV tier: bring a prefix from storage into the host memory beside an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from connectors.engines.base import Salt


@dataclass(frozen=True)
class Fetched:
    """What is in host memory after a fetch.

    Args:
        whole: whether every full chunk of the prompt is there.
        tokens: how long these chunks are together; 0 where the prompt is shorter than a chunk.
        missing: full chunks were asked for and not all found; what was found is there too.
    """

    whole: bool
    tokens: int = 0
    missing: bool = False


class KvTier(Protocol):
    """The tiers below one replica. Safe to call concurrently from one event loop.

    Errors, for every method: `TransientFault` when it did not answer in time, or does not know the model yet;
    `RefusedCommand` when it said no. No word of its answers is repeated: they quote what was sent, a salt as well.
    """

    async def fetch(self, model: str, tokens: Sequence[int], salt: Salt | None, *, timeout_s: float) -> Fetched:
        """Bring the full chunks of a prompt into host memory, as far as storage has them; returns when they are there.

        The engine is not touched. Not promised: that they stay (LRU), or that nothing else had to leave host memory for
        them. Asking again is harmless. A fetch that is given up comes to its end nevertheless: there is no call to stop
        one.

        Args:
            model: as the tier knows it: the path or name that the engine was started with.
        """
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
