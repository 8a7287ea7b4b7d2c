"""What plain LRU would have kept: a shadow of one replica's pool that sees the requests and no warm-ups.

It tells, from arrivals and capacity alone, which requests would have found their prefix gone. Whether a unit is warmed
cannot change that, so it may decide which requests are compared. There is no time: a request's segments are there at
once, its answer is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from analytics.cache_models import LruCache, Run


class ShadowLru:
    """A pool of `capacity_tokens`; a segment that has lost its tail is not there.

    Args:
        capacity_tokens: of the replica's pool.
    """

    def __init__(self, capacity_tokens: int) -> None:
        self._pool = LruCache(capacity_tokens)

    def request(self, segments: Sequence[str], tokens: Sequence[int]) -> int:
        """How many leading segments are there; afterwards all are, and the longest untouched tokens have left."""
        prompt = [Run(segment, size) for segment, size in zip(segments, tokens, strict=True)]
        found = 0
        while found < len(prompt) and self._pool.held(segments[found]) == tokens[found]:
            found += 1
        self._pool.request(prompt)
        return found
