"""The size of a paged KV cache: how many blocks to reserve, and when to refuse (D15)."""

from __future__ import annotations

from dataclasses import dataclass

from analytics.memory_view import MAX_BATCH, MAX_SEQ_TOKENS

BLOCK_TOKENS = 64
MAX_NUM_TOKENS = 8_192
HEAD_ROOM = 2
"""The cap is so many times the first reserve."""


@dataclass(frozen=True)
class PagedKv:
    """Sizes of a paged KV cache.

    Attributes:
        max_seq_tokens: of the longest sequence, prompt and answer. max_batch: sequences at a time.
        block_tokens: of a block.
        max_num_tokens: that an engine step may take.
    """

    max_seq_tokens: int = MAX_SEQ_TOKENS
    max_batch: int = MAX_BATCH
    block_tokens: int = BLOCK_TOKENS
    max_num_tokens: int = MAX_NUM_TOKENS

    @property
    def host_num_blocks(self) -> int:
        """Reserved at first: room for a full batch of the longest sequences; 1,024 at 2,048 tokens, 32 and 64."""
        return -(-self.max_seq_tokens * self.max_batch // self.block_tokens)

    @property
    def host_max_num_blocks(self) -> int:
        """The cap of the reserve."""
        return HEAD_ROOM * self.host_num_blocks

    def blocks_of(self, tokens: int) -> int:
        """Blocks that a sequence holds."""
        return -(-tokens // self.block_tokens)


class Reserve:
    """Blocks that are reserved and handed out: the reserve grows, twofold each time, to its cap; beyond it refuses.

    Attributes:
        reserved: blocks. held: of them, handed out.
        grown: how often it grew. refused: requests that found no room.
    """

    def __init__(self, size: PagedKv) -> None:
        self._cap = size.host_max_num_blocks
        self.reserved = size.host_num_blocks
        self.held = 0
        self.grown = 0
        self.refused = 0

    def take(self, blocks: int) -> bool:
        """Hands blocks out, if there is room or it can grow; says whether it did."""
        if self.held + blocks > self._cap:
            self.refused += 1
            return False
        while self.held + blocks > self.reserved:
            self.reserved = min(self._cap, 2 * self.reserved)
            self.grown += 1
        self.held += blocks
        return True

    def give_back(self, blocks: int) -> None:
        """Takes blocks back; what was reserved stays reserved."""
        self.held -= blocks
