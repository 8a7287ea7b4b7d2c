"""A Zipf law whose favourites change: who is asked for how often, in a world that moves on."""

from __future__ import annotations

import random
from bisect import bisect_left
from itertools import accumulate


class DriftingZipf:
    """Draws an item; the weight of the item at rank r (from 1) is r**-exponent.

    Every `drift_ms` one item leaps from the last rank to the first and all others move down one: a sudden rise and a
    slow fade, as news and support cases have them. After `items` leaps everything has been on top once.

    Args:
        items: how many there are, at least 1.
        exponent: 0 is uniform, 1 the classic law.
        drift_ms: time between two leaps; None for a law that stays.
        seed: of the order in which items get to the top.
    """

    def __init__(self, items: int, exponent: float, drift_ms: float | None, seed: int) -> None:
        if items < 1:
            raise ValueError("a Zipf law needs at least one item")
        self._order = list(range(items))
        random.Random(seed).shuffle(self._order)
        self._drift_ms = drift_ms
        weights = [rank**-exponent for rank in range(1, items + 1)]
        self._upto = list(accumulate(weights))

    def at_rank(self, rank: int, at_ms: float) -> int:
        """The item at a rank (from 0) at a time."""
        leaps = int(at_ms // self._drift_ms) if self._drift_ms else 0
        return self._order[(rank - leaps) % len(self._order)]

    def draw(self, source: random.Random, at_ms: float) -> int:
        """An item, by the law as it stands at `at_ms`."""
        return self.at_rank(bisect_left(self._upto, source.random() * self._upto[-1]), at_ms)
