"""What plain LRU would have kept: a shadow of one replica's pool that sees the requests and no warm-ups.

It tells, from arrivals and capacity alone, which requests would have found their prefix gone, and how much of each
prompt they would have found. Whether a unit is warmed cannot change that, so it may decide which requests are compared.
It counts in blocks as the engine does, answers take their room, and there is no time: a request's blocks are there at
once. On the demo's workload its share of tokens found is within half a point of that of the simulator's pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from analytics.cache_models import LruCache, cut


class Found(NamedTuple):
    """What is there of a prompt.

    Attributes:
        segments: leading ones that are there to their last full block.
        tokens: of all leading blocks, also of those before the gap of a segment that has lost its tail.
    """

    segments: int
    tokens: int


class ShadowLru:
    """A pool of `capacity_tokens`.

    Args:
        capacity_tokens: of the replica's pool.
        block_tokens: of the engine; what fills no last block is kept nowhere.
    """

    def __init__(self, capacity_tokens: int, block_tokens: int = 1) -> None:
        self._pool = LruCache(capacity_tokens // block_tokens)
        self._block_tokens = block_tokens
        self._answers = 0

    def request(self, segments: Sequence[str], tokens: Sequence[int], answer_tokens: int = 0) -> Found:
        """What a request finds; afterwards all of it is there, and the longest untouched blocks have left."""
        self._answers += 1
        parts = [*zip(segments, tokens, strict=True), (self._answers, answer_tokens)]
        runs = cut(parts, self._block_tokens)
        whole = {run.key: self._pool.held(run.key) >= run.blocks for run in runs}
        found = 0
        while found < len(segments) and whole.get(segments[found], True):
            found += 1
        return Found(found, self._pool.request(runs) * self._block_tokens)
