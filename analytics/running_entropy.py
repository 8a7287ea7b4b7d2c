"""Entropy of counts that change all the time: two running sums, kept in whole numbers so that nothing ever drifts.

H = ln W - S / W with W = Σ c and S = Σ c ln c: a count that changes touches one term of S (algorithms.md §1). S is held
in units of 2^-32 nats, each term rounded once. Sums of whole numbers do not depend on the order of changes, so counting
up and down for ever leaves exactly what a fresh count of the same keys gives, and no resynchronisation is needed. The
rounding is at most half a unit for each key asked for twice or more, of which there are at most W / 2: the entropy is
off by at most 2^-34 nats, 1e-10 bits.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNITS_PER_NAT = 1 << 32
_TABLE_SIZE = 1 << 17
_LN2 = math.log(2)

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class CountSums:
    """What is known of a set of whole counts.

    Attributes:
        weight: W, the sum of the counts.
        units: S in units of 2^-32 nats.
        distinct: how many counts are above zero.
    """

    weight: int = 0
    units: int = 0
    distinct: int = 0

    @property
    def entropy_bits(self) -> float:
        """Plug-in entropy, which is too low by about (K - 1) / (2 W) nats."""
        if self.weight <= 0:
            return 0.0
        return max(0.0, (math.log(self.weight) - self.units / UNITS_PER_NAT / self.weight) / _LN2)

    @property
    def corrected_bits(self) -> float:
        """Entropy with the correction of Miller and Madow (1955), so that a mere change of rate moves it little."""
        if self.weight <= 0:
            return 0.0
        return self.entropy_bits + (self.distinct - 1) / (2 * self.weight) / _LN2


def clogc_units(count: int) -> int:
    """c ln c in units of 2^-32 nats, rounded to a whole one; 0 for c = 0."""
    return _SMALL[count] if count < _SMALL_SIZE else _rounded(count)


def _rounded(count: int) -> int:
    return round(count * math.log(count) * UNITS_PER_NAT) if count > 1 else 0


_SMALL_SIZE = 1024
_SMALL = [_rounded(count) for count in range(_SMALL_SIZE)]


@cache
def _table() -> Integers:
    return np.array([_rounded(count) for count in range(_TABLE_SIZE)], dtype=np.int64)


def _units(counts: Integers) -> Integers:
    try:
        known: Integers = _table().take(counts)
        return known
    except IndexError:
        return np.array([clogc_units(count) for count in counts.tolist()], dtype=np.int64)


def sums_of(counts: Iterable[int]) -> CountSums:
    """Sums of these counts, counted afresh: what the running ones must equal.

    >>> round(sums_of([4, 4]).entropy_bits, 9)
    1.0
    """
    held = [count for count in counts if count]
    return CountSums(sum(held), sum(map(clogc_units, held)), len(held))


class RunningEntropy:
    """Counts of keys of any kind, one change at a time.

    >>> counts = RunningEntropy()
    >>> for key in "abba":
    ...     counts.add(key)
    >>> round(counts.sums.entropy_bits, 9)
    1.0
    >>> counts.remove("a", 2)
    >>> round(counts.sums.entropy_bits, 9)
    0.0
    """

    def __init__(self) -> None:
        self._counts: dict[Hashable, int] = {}
        self._weight = 0
        self._units = 0

    @property
    def sums(self) -> CountSums:
        """As of now."""
        return CountSums(self._weight, self._units, len(self._counts))

    def add(self, key: Hashable, times: int = 1) -> None:
        """Counts a key so many times more."""
        self._change(key, times)

    def remove(self, key: Hashable, times: int = 1) -> None:
        """Takes back what was added.

        Raises:
            ValueError: the key was not added so often.
        """
        self._change(key, -times)

    def _change(self, key: Hashable, by: int) -> None:
        before = self._counts.get(key, 0)
        after = before + by
        if after < 0:
            raise ValueError(f"{-by} of {key!r} cannot be removed, {before} are counted")
        if after:
            self._counts[key] = after
        else:
            self._counts.pop(key, None)
        self._weight += by
        self._units += clogc_units(after) - clogc_units(before)


class EntropyColumn:
    """The same over keys that have small numbers (`KeyNumbers`), a batch at a time: pays from about 128 a batch."""

    def __init__(self) -> None:
        self.counts: Integers = np.zeros(1024, dtype=np.int64)
        self._weight = 0
        self._units = 0
        self._distinct = 0

    @property
    def sums(self) -> CountSums:
        """As of now."""
        return CountSums(self._weight, self._units, self._distinct)

    def add(self, keys: Integers) -> None:
        """Counts every key of a batch once more for each time that it occurs in it."""
        self.exchange(keys, _NO_KEYS)

    def remove(self, keys: Integers) -> None:
        """Takes back what was added.

        Raises:
            ValueError: a key was not added so often; nothing is changed.
        """
        self.exchange(_NO_KEYS, keys)

    def exchange(self, entering: Integers, leaving: Integers) -> None:
        """Adds some keys and removes others at once, which costs less than one after the other.

        Raises:
            ValueError: a key was not added so often as it is removed; nothing is changed.
        """
        if not len(entering) + len(leaving):
            return
        changed = _rising(np.concatenate((entering, leaving)))
        if changed[-1] >= len(self.counts):
            self.counts = grown(self.counts, int(changed[-1]) + 1)
        before = self.counts.take(changed)
        np.add.at(self.counts, entering, 1)
        np.subtract.at(self.counts, leaving, 1)
        after = self.counts.take(changed)
        if after.min() < 0:
            self.counts[changed] = before
            raise ValueError("keys cannot be removed more often than they were added")
        self._weight += len(entering) - len(leaving)
        self._units += int((_units(after) - _units(before)).sum())
        self._distinct += int(np.count_nonzero(after)) - int(np.count_nonzero(before))


def _rising(keys: Integers) -> Integers:
    """The distinct numbers of a batch that is not empty, in rising order."""
    ordered = np.sort(keys)
    first = np.empty(len(ordered), dtype=bool)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    found: Integers = ordered[first]
    return found


def distinct(keys: Integers) -> tuple[Integers, Integers]:
    """The distinct numbers of a batch that is not empty, rising, and how often each occurs; numpy's own, less slow."""
    ordered = np.sort(keys)
    first = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    starts = np.concatenate((_ZERO, first))
    return ordered[starts], np.diff(starts, append=len(keys))


def grown(column: NDArray[Any], size: int) -> NDArray[Any]:
    """The column, or where it is shorter than `size` a copy of at least twice its length, filled up with zeros."""
    if len(column) >= size:
        return column
    longer = np.zeros(max(size, 2 * len(column)), dtype=column.dtype)
    longer[: len(column)] = column
    return longer


_ZERO = np.zeros(1, dtype=np.int64)
_NO_KEYS = np.zeros(0, dtype=np.int64)
