"""Budgets: buckets that fill with event time, one a scope and unit, by each scope's static share of its pool (D15)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from analytics.records import Record, Section, pack, path, unpack

if TYPE_CHECKING:
    from analytics.commands import Allowance

LEAST_RATE_PER_S = 1e-6
"""A bucket that fills more slowly is remembered no longer than at this rate."""


class BucketRecord(Record, frozen=True, array_like=True):
    """A bucket as it is kept: what it held after the last payment, and when it is next looked at as a full one."""

    scope: str
    held: float
    at_ms: int
    full_ms: int = 0


class Budget:
    """Buckets of one unit, one a scope. A new one is full.

    What costs more than a full bucket is paid by a full one and leaves a debt: the average holds, and nothing is too
    large for ever. Buckets change only by payments and refunds, so that nothing is written while time merely passes.
    """

    def __init__(self, store: Section) -> None:
        self._store = store
        self._held: dict[str, tuple[float, int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def held(self, scope: str, rate_per_s: float, burst: float, at_ms: int) -> float:
        """What the bucket holds at a time; negative in debt."""
        held = self._held.get(scope)
        if held is None:
            return burst
        return min(burst, held[0] + rate_per_s * max(0, at_ms - held[1]) / 1000)

    def pay(self, scope: str, cost: float, rate_per_s: float, burst: float, at_ms: int) -> bool:
        """Pays if the bucket can, and says whether it did."""
        held = self.held(scope, rate_per_s, burst, at_ms)
        if burst <= 0 or held < min(cost, burst):
            return False
        self._set(scope, held - cost, at_ms, at_ms + _filling_ms(burst - held + cost, rate_per_s))
        return True

    def refund(self, scope: str, amount: float) -> None:
        """Gives back what a command did not use; a bucket that has been full in between holds no more for it."""
        held = self._held.get(scope)
        if held is not None and amount > 0:
            self._set(scope, held[0] + amount, held[1], held[2])

    def owe(self, scope: str, amount: float, rate_per_s: float, burst: float, at_ms: int) -> None:
        """Takes what a command used beyond its charge; the bucket may be in debt after it."""
        if amount > 0:
            held = self.held(scope, rate_per_s, burst, at_ms) - amount
            self._set(scope, held, at_ms, at_ms + _filling_ms(burst - held, rate_per_s))

    def forget(self, at_ms: int, allowance_of: Callable[[str], Allowance]) -> None:
        """Drops the buckets that are full again: they are as new ones.

        Args:
            allowance_of: what a scope may spend now. One that fills more slowly than when it paid is full later; one
                that has no income any more is forgotten when it would have been full.
        """
        for scope in [scope for scope, held in self._held.items() if held[2] <= at_ms]:
            now = allowance_of(scope)
            lack = now.burst - self.held(scope, now.rate_per_s, now.burst, at_ms) if now.burst > 0 else 0.0
            if lack > 0:
                held, since_ms, _ = self._held[scope]
                self._set(scope, held, since_ms, at_ms + _filling_ms(lack, now.rate_per_s))
            else:
                del self._held[scope]
                self._store.remove(path(scope))

    def restore(self, blob: bytes) -> None:
        """Takes back one bucket."""
        record = unpack(blob, BucketRecord)
        self._held[record.scope] = (record.held, record.at_ms, record.full_ms)

    def _set(self, scope: str, held: float, at_ms: int, full_ms: int) -> None:
        before = self._held.get(scope)
        at_ms = max(at_ms, before[1]) if before else at_ms
        self._held[scope] = (held, at_ms, full_ms)
        self._store.put(path(scope), pack(BucketRecord(1, scope, held, at_ms, full_ms)))


def _filling_ms(lack: float, rate_per_s: float) -> int:
    return math.ceil(lack / max(rate_per_s, LEAST_RATE_PER_S) * 1000)
