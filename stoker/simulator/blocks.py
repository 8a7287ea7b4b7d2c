"""The block pool: reference counts, prefix hits, and LRU over idle blocks. Pure accounting, no time in it.

A block is *held* by running requests, *idle* (findable, nobody holds it) or *blank* (nothing findable in it). Blank
blocks are used first, then the idle block that was released longest ago leaves. When a request ends its tail is
released first, so the tail of a prefix leaves before its head. The last token of a prompt is always recomputed, so a
hit never covers the whole prompt.

One simplification against vLLM: a recomputed block whose twin is already findable stays private to its request instead
of becoming a second findable copy.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Held:
    """The blocks of one running request.

    Args:
        hashes: identity of the request's full blocks, oldest first; grows while it decodes.
        hit_blocks: leading blocks that were found.
        stored: leading blocks whose content is computed and was offered to the pool.
        shared: blocks it holds a reference on, oldest first.
        private: blocks it holds that nobody can find.
    """

    hashes: list[bytes]
    hit_blocks: int
    stored: int
    shared: list[bytes]
    private: int


class BlockPool:
    """All KV blocks of one replica.

    Args:
        num_blocks: blocks, one of which is the null block that holds nothing.
        block_tokens: tokens a block.
    """

    def __init__(self, num_blocks: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.usable = num_blocks - 1
        self.blank = self.usable
        self.evicted_total = 0
        self._references: dict[bytes, int] = {}
        self._idle: OrderedDict[bytes, None] = OrderedDict()
        self._evicted: list[bytes] = []

    @property
    def free(self) -> int:
        """Blocks a new request may take: blank and idle ones."""
        return self.blank + len(self._idle)

    @property
    def idle(self) -> int:
        """Findable blocks that nobody holds."""
        return len(self._idle)

    @property
    def held(self) -> int:
        """Blocks of running requests."""
        return self.usable - self.free

    @property
    def usage(self) -> float:
        """vLLM's gauge, 0..1: idle cached blocks count as free."""
        return self.held / self.usable

    def __contains__(self, block_hash: bytes) -> bool:
        return block_hash in self._references or block_hash in self._idle

    def resident_blocks(self, hashes: Sequence[bytes]) -> int:
        """Leading blocks that are findable. Changes nothing."""
        count = 0
        for block_hash in hashes:
            if block_hash not in self._references and block_hash not in self._idle:
                break
            count += 1
        return count

    def admit(self, hashes: Sequence[bytes], prompt_tokens: int, total_tokens: int) -> Held | None:
        """Take the blocks for a request, or None where the pool cannot give them now.

        Args:
            hashes: full blocks of the prompt.
            prompt_tokens: length of the prompt, at least 1.
            total_tokens: prompt and answer as far as their KV gets computed; reserved at once, so nothing is preempted.
        """
        hits = self.resident_blocks(hashes[: (prompt_tokens - 1) // self.block_tokens])
        need = -(-total_tokens // self.block_tokens) - hits
        revived = sum(1 for block_hash in hashes[:hits] if block_hash in self._idle)
        if need > self.free - revived:
            return None
        shared = list(hashes[:hits])
        for block_hash in shared:
            if block_hash in self._idle:
                del self._idle[block_hash]
                self._references[block_hash] = 1
            else:
                self._references[block_hash] += 1
        from_blank = min(need, self.blank)
        self.blank -= from_blank
        for _ in range(need - from_blank):
            evicted, _none = self._idle.popitem(last=False)
            self._evicted.append(evicted)
            self.evicted_total += 1
        return Held(list(hashes), hits, hits, shared, need)

    def store(self, held: Held, computed_tokens: int) -> list[tuple[int, bytes]]:
        """Make the blocks that are full after `computed_tokens` findable.

        Returns:
            (index, hash) of those that were not findable before.
        """
        full = min(computed_tokens // self.block_tokens, len(held.hashes))
        created: list[tuple[int, bytes]] = []
        references, idle, shared = self._references, self._idle, held.shared
        for index in range(held.stored, full):
            block_hash = held.hashes[index]
            if block_hash in references or block_hash in idle:
                continue
            references[block_hash] = 1
            shared.append(block_hash)
            created.append((index, block_hash))
        held.private -= len(created)
        held.stored = max(held.stored, full)
        return created

    def release(self, held: Held) -> None:
        """Give a request's blocks back, tail first."""
        for block_hash in reversed(held.shared):
            count = self._references[block_hash]
            if count > 1:
                self._references[block_hash] = count - 1
            else:
                del self._references[block_hash]
                self._idle[block_hash] = None
        self.blank += held.private
        held.shared.clear()
        held.private = 0

    def clear(self) -> bool:
        """Forget every idle block. False, and nothing happens, while a request holds blocks."""
        if self.held:
            return False
        self.blank = self.usable
        self._idle.clear()
        self._evicted.clear()
        return True

    def take_evictions(self) -> list[bytes]:
        """Blocks evicted since the last call, in order, for the KV events."""
        evicted, self._evicted = self._evicted, []
        return evicted
