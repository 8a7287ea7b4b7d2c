"""How long replicas keep what nobody asks for, learned from what warm-ups found there (D11).

A replica keeps a prefix for its characteristic time after the last use (Che's approximation of LRU), which follows from
capacity and traffic, and neither need be known: each warm-up that was applied found its prefix absent, each that was
resident found it there. The likelihood of these findings over a grid of times tells which it is; what was seen fades,
so that the time may change. Of replicas that tell what they hold nothing need be guessed.
"""

from __future__ import annotations

import math

from analytics.records import Record, Section, pack, unpack

GRID_MS = tuple(1000.0 * 2 ** (step / 2) for step in range(28))
"""From a second to three hours."""
MEMORY_FOUND = 512.0
"""After so many findings one counts half."""
LEAST_CHANCE = 1e-3
"""No finding is impossible: rates are estimates, and others may have asked."""


DOUBT = 4.0
"""Log likelihood that an octave away from the expected time costs: a few findings do not overthrow it."""
TOLERANCE = 0.2
"""Relative change below which the time in force stays, so that what follows from it need not be looked at again."""


class StayRecord(Record, frozen=True, array_like=True):
    """Log likelihood of each time of the grid, and the time in force."""

    log_likelihood: tuple[float, ...]
    ms: float | None


class StayTime:
    """The characteristic time of a pool's replicas.

    Args:
        first_ms: what is expected before anything is known.
        store: of one record, key "".

    Attributes:
        ms: the time in force; None as long as nothing was found.
    """

    def __init__(self, first_ms: float, store: Section) -> None:
        self._first_ms = first_ms
        self._store = store
        self.ms: float | None = None
        self._log_likelihood = self._expected()

    def learn(self, rate_per_s: float, absent: bool) -> bool:
        """A warm-up found its prefix absent, or there, where nothing had been known of it.

        Args:
            rate_per_s: of requests that meet this replica.

        Returns:
            whether the time in force has changed.
        """
        fade = 2.0 ** (-1.0 / MEMORY_FOUND)
        for step, grid_ms in enumerate(GRID_MS):
            chance = math.exp(-rate_per_s * grid_ms / 1000)
            likelihood = chance if absent else 1.0 - chance
            self._log_likelihood[step] = fade * self._log_likelihood[step] + math.log(max(LEAST_CHANCE, likelihood))
        likely_ms, before_ms = self._likely_ms(), self.ms
        changed = before_ms is None or abs(likely_ms / before_ms - 1) > TOLERANCE
        if changed:
            self.ms = likely_ms
        self._store.put("", pack(StayRecord(1, tuple(self._log_likelihood), self.ms)))
        return changed

    def forget(self) -> None:
        """Knows nothing any more, and leaves nothing behind."""
        if self.ms is not None:
            self.ms, self._log_likelihood = None, self._expected()
            self._store.remove("")

    def restore(self, blob: bytes) -> None:
        """Takes back what was learned."""
        record = unpack(blob, StayRecord)
        self._log_likelihood, self.ms = list(record.log_likelihood), record.ms

    def _expected(self) -> list[float]:
        return [-DOUBT * abs(math.log2(grid_ms / self._first_ms)) for grid_ms in GRID_MS]

    def _likely_ms(self) -> float:
        """The mean of the logarithm, by likelihood."""
        most = max(self._log_likelihood)
        weights = [math.exp(each - most) for each in self._log_likelihood]
        logs = [weight * math.log(grid_ms) for weight, grid_ms in zip(weights, GRID_MS, strict=True)]
        return math.exp(math.fsum(logs) / math.fsum(weights))
