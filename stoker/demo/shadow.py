"""What plain LRU would have kept: a shadow of one replica's pool that sees the requests and no warm-ups.

It tells, from arrivals and capacity alone, which requests would have found their prefix gone. Whether a unit is warmed
cannot change that, so it may decide which requests are compared. `ShadowLru` knows no time: what it decides must not
depend on how long a request took. `PatientShadow` does, and tells how many tokens would have been found: on a slow
machine requests come while what they would find is still being computed. Both count blocks as the engine does, and
answers take their room.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from analytics.cache_models import LruCache, Prompt, Run, cut


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

    def request(self, segments: Sequence[str], tokens: Sequence[int], answer_tokens: int = 0) -> int:
        """How many leading segments are there to their last block; afterwards all are, and the oldest blocks left."""
        self._answers += 1
        parts = [*zip(segments, tokens, strict=True), (self._answers, answer_tokens)]
        runs = cut(parts, self._block_tokens)
        whole = {run.key: self._pool.held(run.key) >= run.blocks for run in runs}
        found = 0
        while found < len(segments) and whole.get(segments[found], True):
            found += 1
        self._pool.request(runs)
        return found


class PatientShadow:
    """A pool in which a prompt can be found once its first token came.

    Args:
        capacity_tokens, block_tokens: as of `ShadowLru`.
    """

    def __init__(self, capacity_tokens: int, block_tokens: int = 1) -> None:
        self._pool = LruCache(capacity_tokens // block_tokens)
        self._block_tokens = block_tokens
        self._requests = 0
        self._coming: list[tuple[float, int, Prompt]] = []

    def request(
        self,
        segments: Sequence[str],
        tokens: Sequence[int],
        answer_tokens: int = 0,
        at_ms: float = 0.0,
        ttft_ms: float | None = 0.0,
    ) -> int:
        """Tokens of the leading blocks that a request finds. To be told in the order of arrival.

        Args:
            ttft_ms: until its own blocks are there; None if they never were.
        """
        while self._coming and self._coming[0][0] <= at_ms:
            self._pool.request(heapq.heappop(self._coming)[2])
        self._requests += 1
        prompt = cut(zip(segments, tokens, strict=True), self._block_tokens)
        found = self._pool.found(prompt)
        self._pool.request(_beginning(prompt, found))  # in use, so they do not leave
        if ttft_ms is not None:
            whole = cut([*zip(segments, tokens, strict=True), (self._requests, answer_tokens)], self._block_tokens)
            heapq.heappush(self._coming, (at_ms + ttft_ms, self._requests, whole))
        return found * self._block_tokens


def _beginning(prompt: Prompt, blocks: int) -> list[Run]:
    kept = []
    for run in prompt:
        if blocks > 0:
            kept.append(Run(run.key, min(run.blocks, blocks)))
        blocks -= run.blocks
    return kept
