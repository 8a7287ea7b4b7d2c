"""What plain LRU would have kept: a shadow of one replica's pool that sees the requests and no warm-ups.

It tells, from arrivals and capacity alone, which requests would have found their prefix gone. Whether a unit is warmed
cannot change that, so it may decide which requests are compared. Segments instead of blocks, and no time: a request's
segments are there at once, its answer is left out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class ShadowLru:
    """A pool of `capacity_tokens` that holds whole segments; the head of a prefix outlives its tail.

    Args:
        capacity_tokens: of the replica's pool.
    """

    def __init__(self, capacity_tokens: int) -> None:
        self._free = capacity_tokens
        self._kept: OrderedDict[str, int] = OrderedDict()

    def request(self, segments: Sequence[str], tokens: Sequence[int]) -> int:
        """How many leading segments are there; afterwards all are, and the longest untouched ones have left."""
        found = 0
        for segment in segments:
            if segment not in self._kept:
                break
            found += 1
        for segment, size in zip(reversed(segments), reversed(tokens), strict=True):
            if segment not in self._kept:
                self._free -= size
                self._kept[segment] = size
            self._kept.move_to_end(segment)
        while self._free < 0 and self._kept:
            _, size = self._kept.popitem(last=False)
            self._free += size
        return found
