"""Forward decay in the log domain: counts that fade without being touched (Cormode et al., ICDE 2009).

A *level* is ln Σ w·exp(rate·t) over the events seen. It does not change while time passes, so the order of keys is
stable between touches; only reading an amount needs the present time. Event times may come in any order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

EMPTY = -math.inf
"""Level of a key that was never seen."""


@dataclass(frozen=True)
class Decay:
    """Exponential decay with a rate per millisecond.

    >>> decay = Decay.half_life(1000)
    >>> level = decay.added(EMPTY, 4.0, 0)
    >>> round(decay.amount(level, 2000), 9)
    1.0
    """

    per_ms: float

    @classmethod
    def half_life(cls, half_life_ms: float) -> Decay:
        """An event counts one half after this time."""
        return cls(math.log(2) / half_life_ms)

    @classmethod
    def mean_life(cls, mean_life_ms: float) -> Decay:
        """An event counts 1/e after this time."""
        return cls(1 / mean_life_ms)

    def mark(self, weight: float, at_ms: float) -> float:
        """Level of one event of this weight; `join` adds it to others."""
        return math.log(weight) + self.per_ms * at_ms

    def added(self, level: float, weight: float, at_ms: float) -> float:
        """Level after one more event. `weight` is positive."""
        return join(level, self.mark(weight, at_ms))

    def amount(self, level: float, at_ms: float) -> float:
        """The decayed sum of weights at a time."""
        return math.exp(level - self.per_ms * at_ms)

    def level_of(self, amount: float, at_ms: float) -> float:
        """The level that stands for an amount at a time; the inverse of `amount`."""
        return math.log(amount) + self.per_ms * at_ms if amount > 0 else EMPTY

    def rate_per_s(self, amount: float) -> float:
        """Rate of a steady process whose decayed sum is `amount`.

        A process that began less than a mean life ago is faster than that: the estimate errs on the side of leaving.
        """
        return amount * self.per_ms * 1000


def join(one: float, other: float) -> float:
    """Level of two sets of events together: ln(exp(one) + exp(other)) without overflow."""
    if one < other:
        one, other = other, one
    if other == EMPTY:
        return one
    return one + math.log1p(math.exp(other - one))
