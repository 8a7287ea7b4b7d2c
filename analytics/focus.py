"""Has a crowd gathered on few keys? The reference rules of D2, on plug-in entropies of tumbling minutes, in bits.

Both compare strictly. They cannot tell a crowd from a crawler: what they report has verdict `crowd` by definition.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from itertools import pairwise

MAX_ENTROPY_BITS = 2.1
FALL_SHARE = 0.15
FALL_BITS = 0.08
FOCUS_KEYS = 50
PERIODS = 3


def entropy_only(
    entropy_history: Sequence[float], max_bits: float = MAX_ENTROPY_BITS, fall_share: float = FALL_SHARE
) -> bool:
    """Whether entropy is low and fell sharply twice running.

    Args:
        entropy_history: entropies of consecutive minutes in bits, the oldest first.
        max_bits: the last must lie below it.
        fall_share: each of the last two steps must fall by more than this share of where it started.

    >>> entropy_only([3.0, 2.4, 2.0])
    True
    >>> entropy_only([3.0, 2.4, 2.04])
    False
    """
    if len(entropy_history) < PERIODS:
        return False
    first, second, third = entropy_history[-PERIODS:]
    keeps = 1 - fall_share
    return third < max_bits and second < keeps * first and third < keeps * second


def should_preheat(
    entropy_history: Sequence[float],
    recent_qps: Mapping[str, float],
    max_bits: float = MAX_ENTROPY_BITS,
    fall_bits: float = FALL_BITS,
    keys: int = FOCUS_KEYS,
) -> list[str]:
    """The keys to warm: the hottest of the current minute when entropy is low and falling, else none.

    Args:
        entropy_history: entropies of consecutive minutes in bits, the oldest first; fewer than three say nothing.
        recent_qps: rate of each key in the current minute.
        max_bits: the mean of the last three must lie below it.
        fall_bits: the mean of their two differences must lie below minus this.
        keys: how many are returned, the hottest first, equal ones in the order of their names.

    >>> should_preheat([2.3, 2.0, 1.9], {"a": 1.0, "b": 5.0, "c": 0.1}, keys=2)
    ['b', 'a']
    >>> should_preheat([2.0, 2.0, 2.0], {"a": 1.0})
    []
    """
    if len(entropy_history) < PERIODS:
        return []
    recent = entropy_history[-PERIODS:]
    if not (mean(recent) < max_bits and mean_difference(recent) < -fall_bits):
        return []
    return hottest(recent_qps, keys)


def hottest(qps: Mapping[str, float], keys: int) -> list[str]:
    """The keys with the highest rates, in falling order; equal rates in the order of their names."""
    return [key for _, key in heapq.nsmallest(keys, ((-rate, key) for key, rate in qps.items()))]


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def mean_difference(values: Sequence[float]) -> float:
    """Mean of the steps between neighbours; 0 where there is none."""
    return mean([later - earlier for earlier, later in pairwise(values)])


def focus_keys(keys: int, ready_replicas: int, reference_replicas: int) -> int:
    """How many keys a focus names: the base number, scaled by the replicas that could hold them, 1/5 to 5 times."""
    if ready_replicas <= 0:
        return keys
    factor = min(5.0, max(0.2, ready_replicas / reference_replicas))
    return max(1, round(keys * factor))
