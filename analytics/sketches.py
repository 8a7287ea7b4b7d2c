"""Bounds on cosines from a few numbers a vector: most pairs are ruled out without the product of the two.

A unit vector has a part along some directions and a rest, so x·y = (part of x)·(part of y) + (rest of x)·(rest of y),
and the last is at most the product of the rests' lengths (Cauchy-Schwarz). A sketch is a part with its rest's length
behind it: the product of two sketches bounds their cosine from above. The directions are those in which some vectors
vary most, by two steps of orthogonal iteration (Golub and Van Loan 2013, 8.2.4); they decide how tight a bound is,
never whether it holds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SKETCH = 96
"""Numbers a sketch: a quarter of MiniLM's 384, by which of 1,000 pairs of questions 1 to 4 are left to measure."""

FILLED = 1_024
"""Vectors that are sketched at a time: it takes about two milliseconds."""


class Sketches:
    """Sketches of unit vectors in numbered slots.

    Args:
        sample: vectors that directions are learned from.
    """

    def __init__(self, sample: Floats) -> None:
        self._directions = _directions(sample)
        self._values = np.zeros((0, SKETCH), dtype=np.float32)
        self._filled = 0

    def put(self, slots: Ints, units: Floats) -> None:
        """Sketches vectors into slots."""
        self._values = with_room(self._values, int(slots.max()) + 1)
        self._values[slots] = self._sketched(units)

    def clear(self, slots: Ints) -> None:
        """Empties slots, as far as they were reached."""
        self._values[slots[slots < len(self._values)]] = 0

    def fill(self, units: Floats) -> bool:
        """Sketches some more of the vectors that were there before these directions; says whether all are by now.

        Args:
            units: of all slots, zeros where one is empty.
        """
        some = np.arange(self._filled, min(self._filled + FILLED, len(units)))
        if len(some):
            self.put(some, units[some])
        self._filled += len(some)
        return self._filled == len(units)

    def bounds(self, slots: Ints, top: int) -> Floats:
        """Bounds on the cosines of all slots below `top`, a row each, with some.

        A sketch is no longer than its vector and has fewer numbers: a bound's rounding is less than a cosine's.
        """
        bounds: Floats = self._values[:top] @ self._values[slots].T
        return bounds

    def _sketched(self, units: Floats) -> Floats:
        whole = units.astype(np.float64)
        parts = whole @ self._directions
        rests = np.sqrt(np.maximum(0.0, np.vecdot(whole, whole) - np.vecdot(parts, parts)))
        return np.hstack((parts, rests[:, None])).astype(np.float32)


def with_room(rows: Floats, count: int) -> Floats:
    """The rows with room for so many, zeros behind them; room doubles."""
    if count <= len(rows):
        return rows
    more = max(count, 2 * len(rows)) - len(rows)
    return np.concatenate((rows, np.zeros((more, rows.shape[1]), dtype=np.float32)))


def _directions(sample: Floats) -> Doubles:
    """Orthonormal columns, one fewer than a sketch has numbers, along which the sample has most of its length."""
    found = np.eye(sample.shape[1], SKETCH - 1)
    for _ in range(2):
        turned = sample.T @ (sample @ found.astype(np.float32))
        found, _ = np.linalg.qr(turned.astype(np.float64))
    return found
