"""In how many panes of a window each pair of key and user is: a sorted column, of some tens of bytes a pair.

A dictionary would cost five times as much, and a busy scope has hundreds of thousands of pairs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from analytics.running_entropy import Integers


class PairCounts:
    """Counts of words that stand for pairs. What is given is sorted, each word once."""

    def __init__(self) -> None:
        self._pairs: Integers = np.zeros(0, dtype=np.int64)
        self._counts: NDArray[np.int32] = np.zeros(0, dtype=np.int32)

    def __len__(self) -> int:
        return len(self._pairs)

    def add(self, pairs: Integers) -> NDArray[np.bool_]:
        """Counts each once more; says which of them were not there."""
        at = np.searchsorted(self._pairs, pairs)
        known = np.zeros(len(pairs), dtype=bool)
        inside = at < len(self._pairs)
        known[inside] = self._pairs[at[inside]] == pairs[inside]
        self._counts[at[known]] += 1
        fresh = ~known
        self._pairs = np.insert(self._pairs, at[fresh], pairs[fresh])
        self._counts = np.insert(self._counts, at[fresh], 1)
        return fresh

    def remove(self, pairs: Integers) -> NDArray[np.bool_]:
        """Takes back what was added; says which of them are not there any more."""
        at = np.searchsorted(self._pairs, pairs)
        self._counts[at] -= 1
        gone: NDArray[np.bool_] = self._counts[at] == 0
        kept = np.ones(len(self._pairs), dtype=bool)
        kept[at[gone]] = False
        self._pairs, self._counts = self._pairs[kept], self._counts[kept]
        return gone
