"""What a pool lends to scopes that cannot pay a warm-up out of their own bucket (D15).

A bucket of a small share is smaller than most prefixes, so that what costs more than a full one leaves a debt. Each
scope repays out of its own income; but 100,000 new ones could each be lent to at once, and the engines would prefill it
all. So the pool lends out of a bucket of its whole budget's size and rate: it lends while it holds anything, and the
last loan may overdraw it. Whoever pays out of what its own bucket holds is not touched by it.
"""

from __future__ import annotations

import math

from analytics.records import Record, Section, pack, unpack


class LentRecord(Record, frozen=True, array_like=True):
    """What was left after the last loan, and when it is full again."""

    left: float
    at_ms: int
    full_ms: int


class Lending:
    """The loans of one pool.

    Args:
        pause_ms: after a loan that took the last none is made for so long, so that between two ticks that lend there is
            one that does not: what is looked at for loans then keeps nobody waiting.
    """

    def __init__(self, pause_ms: int, store: Section) -> None:
        self._pause_ms = pause_ms
        self._store = store
        self._lent: LentRecord | None = None

    def __bool__(self) -> bool:
        return self._lent is not None

    def open_ms(self, at_ms: int, rate_per_s: float) -> int:
        """When a loan can be had at the earliest; now while anything is left."""
        lent = self._lent
        if lent is None or lent.left > 0:
            return at_ms
        # Strictly more than nothing has to be there.
        return max(at_ms, lent.at_ms + max(self._pause_ms, math.floor(-lent.left / rate_per_s * 1000) + 1))

    def emptied(self, at_ms: int) -> bool:
        """Whether a loan of this very time took the last."""
        return self._lent is not None and self._lent.left <= 0 and self._lent.at_ms == at_ms

    def lend(self, amount: float, at_ms: int, rate_per_s: float, burst: float) -> None:
        """Makes a loan; it must be open.

        Args:
            rate_per_s, burst: of the pool's whole budget.
        """
        lent = self._lent
        at_ms = at_ms if lent is None else max(at_ms, lent.at_ms)
        held = burst if lent is None else min(burst, lent.left + rate_per_s * (at_ms - lent.at_ms) / 1000)
        left = held - amount
        self._lent = LentRecord(1, left, at_ms, at_ms + math.ceil((burst - left) / rate_per_s * 1000))
        self._store.put("", pack(self._lent))

    def forget(self, at_ms: int) -> None:
        """Once it is full again it is as new."""
        if self._lent is not None and self._lent.full_ms <= at_ms:
            self._lent = None
            self._store.remove("")

    def restore(self, blob: bytes) -> None:
        """Takes its record back."""
        self._lent = unpack(blob, LentRecord)
