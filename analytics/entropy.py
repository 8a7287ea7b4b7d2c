"""Plug-in entropy from two sums, so that it merges exactly over disjoint shards.

With W = Σ c and S = Σ c ln c over the keys, H = ln W - S / W nats. Published entropies are in bits; S stays in nats
(algorithms.md §1). No bias correction here: the plug-in value is too low by about (K - 1) / (2 W) nats.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_LN2 = math.log(2)
_TABLE = [0.0, 0.0, *(c * math.log(c) for c in range(2, 4096))]


def clogc(count: float) -> float:
    """c ln c in nats, 0 for c = 0. Small whole counts come from a table."""
    if count < 4096 and count == (whole := int(count)):
        return _TABLE[whole]
    return count * math.log(count)


def entropy_bits(weight: float, sum_clogc: float) -> float:
    """Entropy of a distribution of counts, in bits.

    Args:
        weight: W, the sum of the counts.
        sum_clogc: S, the sum of c ln c in nats.
    """
    if weight <= 0:
        return 0.0
    return max(0.0, (math.log(weight) - sum_clogc / weight) / _LN2)


@dataclass(frozen=True)
class EntropySums:
    """What a set of keys contributes to an entropy."""

    weight: float = 0.0
    sum_clogc: float = 0.0
    distinct: int = 0

    @classmethod
    def of(cls, counts: Iterable[float]) -> EntropySums:
        """Sums of these counts, one a key."""
        held = list(counts)
        return cls(math.fsum(held), math.fsum(map(clogc, held)), len(held))

    @property
    def entropy_bits(self) -> float:
        """Entropy in bits."""
        return entropy_bits(self.weight, self.sum_clogc)


def merged(parts: Iterable[EntropySums]) -> EntropySums:
    """Sums over sets of keys that share none: shards of dimension query. Independent of the order of the parts."""
    held = list(parts)
    return EntropySums(
        math.fsum(part.weight for part in held),
        math.fsum(part.sum_clogc for part in held),
        sum(part.distinct for part in held),
    )
