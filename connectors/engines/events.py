"""KV events as Stoker reads them, whatever the engine's wire form. Token ids and salts stay out of every repr."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class BlocksStored:
    """Consecutive full blocks became findable.

    Args:
        hashes: the engine's identity of each block, oldest first.
        parent: identity of the block before the first, None at the root.
        token_ids: ids of all the blocks, `block_tokens` for each hash.
        adapter: adapter name, None for the base model.
        salt: cache salt that the root block carries, None without one or when `parent` is not None.
    """

    hashes: tuple[int, ...]
    parent: int | None
    token_ids: tuple[int, ...] = field(repr=False)
    block_tokens: int
    adapter: str | None
    salt: str | None = field(repr=False)
    medium: str = "GPU"
    rank: int = 0


@dataclass(frozen=True)
class BlocksRemoved:
    """Blocks were evicted and can no longer be found."""

    hashes: tuple[int, ...]
    medium: str = "GPU"
    rank: int = 0


@dataclass(frozen=True)
class BlocksCleared:
    """All blocks of a rank are gone: a cache reset, or the engine fell asleep."""

    rank: int = 0


@dataclass(frozen=True)
class Gap:
    """Messages were lost for good, or the engine started anew: drop the whole view of this rank.

    Args:
        expected: the sequence number that should have come.
        got: the one that came.
    """

    expected: int
    got: int
    rank: int = 0


KvEvent = BlocksStored | BlocksRemoved | BlocksCleared | Gap
