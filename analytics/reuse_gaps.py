"""Running median of the time between two uses of a thing, from a histogram of bounded size (D11, D12).

A stream that has just begun shows only the gaps that are shorter than itself. A prior of some gaps around an expected
median keeps the first ones from being taken for all there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from analytics.records import Record, pack, unpack

PER_OCTAVE = 8
"""Buckets from one power of two to the next: the median is known to 9 %."""
SHORTEST_MS, OCTAVES = 16.0, 24
BUCKETS = PER_OCTAVE * OCTAVES
PRIOR_GAPS = 256.0
MOST_GAPS = 65_536.0


class GapsRecord(Record, frozen=True, array_like=True):
    """The histogram, and the sum as it was added up."""

    counts: tuple[float, ...]
    total: float


class ReuseGaps:
    """The histogram of gaps, from 16 ms to three days; what is beyond counts as its end.

    Args:
        expected_ms: median that the prior is centred on, an octave to either side.
        prior: gaps that the prior counts for, above 0.
        most: when so many were counted all count half from then on, so that the median runs with the traffic.
    """

    def __init__(self, expected_ms: float, prior: float = PRIOR_GAPS, most: float = MOST_GAPS) -> None:
        self._most = most
        self._counts = [0.0] * BUCKETS
        middle = bucket_of(expected_ms)
        around = range(max(0, middle - PER_OCTAVE), min(BUCKETS, middle + PER_OCTAVE + 1))
        # A multiple of a power of two: whole gaps, and their halves, add up to the same in every order.
        each = math.ceil(prior / len(around) * 1024) / 1024
        for bucket in around:
            self._counts[bucket] = each
        self._total = each * len(around)

    @property
    def total(self) -> float:
        """Gaps that are remembered, the prior among them."""
        return self._total

    def add(self, gap_ms: float, weight: float = 1.0) -> Sequence[int]:
        """Counts a gap. Two uses at the same time say nothing.

        Returns:
            the buckets that changed.
        """
        if gap_ms <= 0:
            return ()
        bucket = bucket_of(gap_ms)
        self._counts[bucket] += weight
        self._total += weight
        if self._total <= self._most:
            return (bucket,)
        self._counts = [count / 2 for count in self._counts]
        self._total = math.fsum(self._counts)
        return range(BUCKETS)

    def median_ms(self) -> float:
        """The middle of the bucket that holds the median."""
        below = 0.0
        for bucket, count in enumerate(self._counts):
            below += count
            if 2 * below >= self._total:
                return float(SHORTEST_MS * 2 ** ((bucket + 0.5) / PER_OCTAVE))
        raise AssertionError("a histogram has a median")

    def count(self, bucket: int) -> float:
        """What a bucket counts, for who keeps buckets one by one."""
        return self._counts[bucket]

    def set_count(self, bucket: int, count: float) -> None:
        """Takes back what a bucket counted."""
        self._counts[bucket] = count
        self._total = math.fsum(self._counts)

    def snapshot(self) -> bytes:
        """Versioned bytes of the histogram."""
        return pack(GapsRecord(1, tuple(self._counts), self._total))

    def restore(self, blob: bytes) -> None:
        """Takes what `snapshot` gave."""
        record = unpack(blob, GapsRecord)
        self._counts, self._total = list(record.counts), record.total


def bucket_of(gap_ms: float) -> int:
    """The bucket of a gap."""
    return min(int(math.log2(max(gap_ms, SHORTEST_MS) / SHORTEST_MS) * PER_OCTAVE), BUCKETS - 1)
