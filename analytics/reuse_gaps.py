"""Running median of the time between two uses of a block, from a histogram of bounded size (D11).

A stream that has just begun shows only the gaps that are shorter than itself. A prior of some gaps around an expected
median keeps the first minutes from taking these for all there are.
"""

from __future__ import annotations

import math

from analytics.records import Record, pack, unpack

PER_OCTAVE = 8
"""Buckets from one power of two to the next: the median is known to 9 %."""
SHORTEST_MS, OCTAVES = 16.0, 24
PRIOR_GAPS = 256.0
MOST_GAPS = 65_536.0
"""When so many were counted all count half from then on, so that the median runs with the traffic."""


class GapsRecord(Record, frozen=True, array_like=True):
    """The histogram."""

    counts: tuple[float, ...]


class ReuseGaps:
    """The histogram of gaps.

    Args:
        expected_ms: median that the prior is centred on, an octave to either side.
    """

    def __init__(self, expected_ms: float) -> None:
        self._counts = [0.0] * (PER_OCTAVE * OCTAVES)
        middle = self._bucket(expected_ms)
        around = range(max(0, middle - PER_OCTAVE), min(len(self._counts), middle + PER_OCTAVE + 1))
        for bucket in around:
            self._counts[bucket] = PRIOR_GAPS / len(around)
        self._total = PRIOR_GAPS

    def add(self, gap_ms: float, weight: float = 1.0) -> None:
        """Counts a gap; weight is in blocks. Two uses at the same time say nothing."""
        if gap_ms <= 0:
            return
        self._counts[self._bucket(gap_ms)] += weight
        self._total += weight
        if self._total > MOST_GAPS:
            self._counts = [count / 2 for count in self._counts]
            self._total = math.fsum(self._counts)

    def median_ms(self) -> float:
        """The middle of the bucket that holds the median."""
        below = 0.0
        for bucket, count in enumerate(self._counts):
            below += count
            if 2 * below >= self._total:
                return float(SHORTEST_MS * 2 ** ((bucket + 0.5) / PER_OCTAVE))
        raise AssertionError("a histogram has a median")

    def snapshot(self) -> bytes:
        """Versioned bytes of the histogram."""
        return pack(GapsRecord(1, tuple(self._counts)))

    def restore(self, blob: bytes) -> None:
        """Takes what `snapshot` gave."""
        self._counts = list(unpack(blob, GapsRecord).counts)
        self._total = math.fsum(self._counts)

    @staticmethod
    def _bucket(gap_ms: float) -> int:
        bucket = int(math.log2(max(gap_ms, SHORTEST_MS) / SHORTEST_MS) * PER_OCTAVE)
        return min(bucket, PER_OCTAVE * OCTAVES - 1)
