"""Vectors that come and go, and which of them are within a radius: exact, and mostly without whole products.

Only pairs whose bound reaches the radius are measured (`Sketches`). Cosines are of float32, and pairs so near to the
radius that rounding could decide are measured again in float64, so that it does not matter how a pair was found.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from analytics.sketches import SKETCH, Floats, Ints, Sketches, with_room

Flags = npt.NDArray[np.bool_]

ROUNDING = 2.0**-24

SKETCHED_FROM = 2_048
"""Vectors from which on sketches pay."""

SAMPLE = 1_024
"""Vectors that directions are learned from, or up to twice as many."""

LEARNED_ANEW = 4
"""Directions are learned anew after so many times the vectors there were: it takes as long as a stride."""

VAIN = 32
"""Whole products cost less than measuring pair by pair where more than one pair of so many is left."""

MEASURED = 256
"""Pairs that are measured at a time: what is gathered stays near the processor."""


class NearRows:
    """Vectors in numbered slots.

    Args:
        eps: radius in cosine distance; two vectors at just this distance are near.
    """

    def __init__(self, eps: float) -> None:
        self._eps = eps
        self._begin(0)

    def _begin(self, dimension: int) -> None:
        """Begins with vectors of a dimension."""
        self._rows: Floats = np.zeros((0, dimension), dtype=np.float32)
        self._units: Floats = np.zeros((0, dimension), dtype=np.float32)
        self._top = 0
        self._held = 0
        self._sketches: Sketches | None = None
        self._coming: Sketches | None = None
        self._unlearned = 0
        self._learned = SKETCHED_FROM
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
        """Puts vectors of any length into empty slots; of another dimension than before only where all are empty."""
        if rows.shape[1] != self.dimension:
            self._begin(rows.shape[1])
        self._top = max(self._top, int(slots.max()) + 1)
        self._rows, self._units = with_room(self._rows, self._top), with_room(self._units, self._top)
        lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
        units = (rows / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
        self._rows[slots], self._units[slots] = rows, units
        self._held += len(slots)
        self._unlearned += len(slots)
        for sketches in (self._sketches, self._coming):
            if sketches is not None:
                sketches.put(slots, units)
        self._learn()

    def clear(self, slots: Ints) -> None:
        """Empties slots: from now on they are near to none."""
        self._held -= len(slots)
        self._units[slots] = 0
        for sketches in (self._sketches, self._coming):
            if sketches is not None:
                sketches.clear(slots)

    def near(self, slots: Ints) -> tuple[Ints, Ints]:
        """Pairs of some slots with all that are within the radius, each slot with itself too.

        Args:
            slots: vectors to look around. Slots that are empty are near to others only where the radius is 1 or more.
        """
        bar = 1.0 - self._eps
        # Rounding of the units and of a sum of products whose absolute values sum to 1 at most (Higham 2002, 3.1).
        margin = (self.dimension + 8) * ROUNDING
        source, target, cosines = self._likely(slots, np.float32(bar - margin))
        kept = cosines >= np.float32(bar - margin)
        doubtful = kept & (cosines < bar + margin)
        if doubtful.any():
            kept[doubtful] = self._within(source[doubtful], target[doubtful])
        return source[kept], target[kept]

    def _likely(self, slots: Ints, bar: np.float32) -> tuple[Ints, Ints, Floats]:
        """Pairs that may have a cosine of `bar`, and the cosine of each."""
        count, top = len(slots), self._top
        if self._sketches is not None:
            found = np.flatnonzero(self._sketches.bounds(slots, top) >= bar)
            if len(found) * VAIN <= count * top:
                source, target = slots[found % count], found // count
                return source, target, self._cosines(source, target)
        products = (self._units[:top] @ self._units[slots].T).ravel()
        found = np.flatnonzero(products >= bar)
        return slots[found % count], found // count, products[found]

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
        """Learns directions where it is time, and goes over to them once all vectors are sketched along them.

        That is spread over what is put next, so that no stride waits for all of it.
        """
        if self.dimension >= 2 * SKETCH and self._held >= SKETCHED_FROM and self._unlearned >= self._learned:
            held = np.flatnonzero(self._units.any(axis=1))
            self._coming = Sketches(self._units[held[:: max(1, len(held) // SAMPLE)]])
            self._unlearned, self._learned = 0, LEARNED_ANEW * self._held
        if self._coming is not None and self._coming.fill(self._units[: self._top]):
            self._sketches, self._coming = self._coming, None
