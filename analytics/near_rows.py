"""Vectors that come and go, and which of them are within a radius: exact, and mostly without whole products.

A unit vector has a part along some directions and a rest, so x·y = (part of x)·(part of y) + (rest of x)·(rest of y),
and the last is at most the product of the rests' lengths (Cauchy-Schwarz). A sketch is a part with its rest's length
behind it: the product of two sketches bounds their cosine from above, and only pairs whose bound reaches the radius are
measured. The directions are those in which the vectors vary most, by two steps of orthogonal iteration (Golub and Van
Loan 2013, 8.2.4); they decide how many pairs are measured in vain, never which are found.

Cosines are of float32, and pairs so near to the radius that rounding could decide are measured again in float64.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

ROUNDING = 2.0**-24

SKETCH = 96
"""Numbers a sketch: a quarter of MiniLM's 384, by which of 1,000 pairs of questions 1 to 4 are left to measure."""

SKETCHED_FROM = 2_048
"""Vectors from which on sketches pay; directions are learned from a sample of so many, or up to twice."""

LEARNED_ANEW = 4
"""Directions are learned anew after so many times the vectors there were: it takes as long as a few strides."""

SKETCHED, MEASURED = 1_024, 256
"""Vectors that are sketched, and pairs that are measured at a time: what is gathered stays near the processor."""

VAIN = 32
"""Whole products cost less than measuring pair by pair where more than one pair of so many is left."""


class NearRows:
    """Vectors in numbered slots.

    Args:
        eps: radius in cosine distance; two vectors at just this distance are near.
    """

    def __init__(self, eps: float) -> None:
        self._eps = eps
        self._rows = np.zeros((0, 0), dtype=np.float32)
        self._units = np.zeros((0, 0), dtype=np.float32)
        self._sketches = np.zeros((0, 0), dtype=np.float32)
        self._held = 0
        self._directions: Doubles | None = None
        self._unlearned, self._learned = 0, SKETCHED_FROM
        """Vectors since directions were learned, and after how many they will be."""

    @property
    def dimension(self) -> int:
        """Of the vectors that were put last."""
        return int(self._rows.shape[1])

    def rows(self, slots: Ints) -> Floats:
        """The vectors of some slots as they were given."""
        rows: Floats = self._rows[slots]
        return rows

    def put(self, slots: Ints, rows: Floats) -> None:
        """Puts vectors of any length into slots; of another dimension than before only where no slot is in use."""
        if rows.shape[1] != self.dimension:
            self._begin(rows.shape[1])
        self._reserve(int(slots.max()) + 1)
        lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
        self._rows[slots] = rows
        self._units[slots] = rows / np.where(lengths > 0, lengths, 1.0)
        self._held += len(slots)
        self._unlearned += len(slots)
        if self.dimension >= 2 * SKETCH and self._held >= SKETCHED_FROM and self._unlearned >= self._learned:
            self._learn()
        elif self._directions is not None:
            self._sketches[slots] = _sketched(self._units[slots], self._directions)

    def clear(self, slots: Ints) -> None:
        """Empties slots: from now on they are near to none."""
        self._held -= len(slots)
        self._units[slots] = 0
        if self._directions is not None:
            self._sketches[slots] = 0

    def near(self, slots: Ints, top: int) -> tuple[Ints, Ints]:
        """Pairs of some slots with all below `top` that are within the radius, each slot with itself too.

        Args:
            slots: vectors to look around. Slots that are empty are near to others only where the radius is 1 or more.
        """
        bar = 1.0 - self._eps
        # Rounding of the units and of a sum of products whose absolute values sum to 1 at most (Higham 2002, 3.1).
        margin = (self.dimension + 8) * ROUNDING
        source, target, cosines = self._likely(slots, top, np.float32(bar - margin))
        kept = cosines >= np.float32(bar - margin)
        doubtful = kept & (cosines < bar + margin)
        if doubtful.any():
            kept[doubtful] = self._within(source[doubtful], target[doubtful])
        return source[kept], target[kept]

    def _likely(self, slots: Ints, top: int, bar: np.float32) -> tuple[Ints, Ints, Floats]:
        """Pairs that may have a cosine of `bar`, and the cosine of each."""
        if self._directions is not None:
            # A sketch is no longer than its vector, and has fewer numbers, so that its product's rounding is less too.
            found = np.flatnonzero(self._sketches[:top] @ self._sketches[slots].T >= bar)
            if len(found) * VAIN <= len(slots) * top:
                source, target = slots[found % len(slots)], found // len(slots)
                return source, target, self._cosines(source, target)
        products = (self._units[:top] @ self._units[slots].T).ravel()
        found = np.flatnonzero(products >= bar)
        return slots[found % len(slots)], found // len(slots), products[found]

    def _cosines(self, source: Ints, target: Ints) -> Floats:
        found = np.empty(len(source), dtype=np.float32)
        for start in range(0, len(source), MEASURED):
            some = slice(start, start + MEASURED)
            # `take` gathers rows in half the time.
            one, other = self._units.take(source[some], axis=0), self._units.take(target[some], axis=0)
            found[some] = np.vecdot(one, other)
        return found

    def _within(self, source: Ints, target: Ints) -> Flags:
        """Which pairs are within the radius, the same whichever of two is named first."""
        one, other = self._rows[source].astype(np.float64), self._rows[target].astype(np.float64)
        lengths = np.sqrt((one * one).sum(axis=1) * (other * other).sum(axis=1))
        cosines = (one * other).sum(axis=1) / np.where(lengths > 0, lengths, 1.0)
        near: Flags = 1.0 - cosines <= self._eps
        return near

    def _learn(self) -> None:
        """Takes directions from a sample of the vectors of now, and sketches all anew."""
        held = np.flatnonzero(self._units.any(axis=1))
        sample = self._units[held[:: len(held) // SKETCHED_FROM or 1]]
        self._directions = _directions(sample)
        self._sketches = np.zeros((len(self._units), SKETCH), dtype=np.float32)
        for start in range(0, len(held), SKETCHED):
            some = held[start : start + SKETCHED]
            self._sketches[some] = _sketched(self._units[some], self._directions)
        self._unlearned, self._learned = 0, LEARNED_ANEW * self._held

    def _begin(self, dimension: int) -> None:
        """Goes on with vectors of another dimension."""
        self._rows = np.zeros((len(self._rows), dimension), dtype=np.float32)
        self._units = np.zeros_like(self._rows)
        self._directions, self._unlearned, self._learned = None, 0, SKETCHED_FROM

    def _reserve(self, slots: int) -> None:
        """Room for so many slots; it doubles."""
        more = max(slots, 2 * len(self._rows)) - len(self._rows) if slots > len(self._rows) else 0
        if more:
            self._rows = np.concatenate((self._rows, np.zeros((more, self.dimension), dtype=np.float32)))
            self._units = np.concatenate((self._units, np.zeros((more, self.dimension), dtype=np.float32)))
            if self._directions is not None:
                self._sketches = np.concatenate((self._sketches, np.zeros((more, SKETCH), dtype=np.float32)))


def _directions(sample: Floats) -> Doubles:
    """Orthonormal columns, one fewer than a sketch has numbers, along which the sample has most of its length."""
    found = np.eye(sample.shape[1], SKETCH - 1)
    for _ in range(2):
        turned = sample.T @ (sample @ found.astype(np.float32))
        found, _ = np.linalg.qr(turned.astype(np.float64))
    return found


def _sketched(units: Floats, directions: Doubles) -> Floats:
    """Sketches in float64, rounded at the end: a bound is off by no more than a cosine of float32 is."""
    whole = units.astype(np.float64)
    parts = whole @ directions
    rests = np.sqrt(np.maximum(0.0, np.vecdot(whole, whole) - np.vecdot(parts, parts)))
    return np.hstack((parts, rests[:, None])).astype(np.float32)
