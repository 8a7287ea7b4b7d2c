"""Forward decay in the log domain: counts that fade without being touched (Cormode et al., ICDE 2009).

A *level* is ln Σ w·exp(rate·t) over the events seen. It does not change while time passes, so the order of keys is
stable between touches; only reading an amount needs the present time. Event times may come in any order. The rate may
change at any time: what the events are worth at that time stays, and no level has to be touched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

EMPTY = -math.inf
"""Level of a key that was never seen."""


@dataclass(frozen=True)
class Decay:
    """Exponential decay with a rate per millisecond; `offset` is what changes of the rate have left behind.

    >>> decay = Decay.half_life(1000)
    >>> level = decay.added(EMPTY, 4.0, 0)
    >>> round(decay.amount(level, 2000), 9)
    1.0
    """

    per_ms: float
    offset: float = 0.0

    @classmethod
    def half_life(cls, half_life_ms: float) -> Decay:
        """An event counts one half after this time."""
        return cls(math.log(2) / half_life_ms)

    @classmethod
    def mean_life(cls, mean_life_ms: float) -> Decay:
        """An event counts 1/e after this time."""
        return cls(1 / mean_life_ms)

    @property
    def half_life_ms(self) -> float:
        """After which an event counts one half."""
        return math.log(2) / self.per_ms

    def with_half_life(self, half_life_ms: float, at_ms: float) -> Decay:
        """Another rate from a time on. Every level keeps its amount at that time, and its order among the others."""
        per_ms = math.log(2) / half_life_ms
        return Decay(per_ms, self.offset + (self.per_ms - per_ms) * at_ms)

    def mark(self, weight: float, at_ms: float) -> float:
        """Level of one event of this weight; `join` adds it to others."""
        return math.log(weight) + (self.offset + self.per_ms * at_ms)

    def added(self, level: float, weight: float, at_ms: float) -> float:
        """Level after one more event. `weight` is positive."""
        return join(level, self.mark(weight, at_ms))

    def amount(self, level: float, at_ms: float) -> float:
        """The decayed sum of weights at a time."""
        return math.exp(level - (self.offset + self.per_ms * at_ms))

    def level_of(self, amount: float, at_ms: float) -> float:
        """The level that stands for an amount at a time; the inverse of `amount`."""
        return math.log(amount) + (self.offset + self.per_ms * at_ms) if amount > 0 else EMPTY

    def reached_ms(self, level: float, amount: float) -> float:
        """When a level has faded to an amount, which is positive."""
        return (level - math.log(amount) - self.offset) / self.per_ms

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
