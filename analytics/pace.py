"""How much of a replica's cache warm-ups may turn over, learned from the harm that it did (D16). Pure.

What leaves for a warm-up is missed, if at all, only when somebody asks for it again, which may take a minute: a breaker
alone would go back to full speed between one harm and the next. So after each harm the pace is half of what it was, and
it comes back slowly while nothing happens.
"""

from __future__ import annotations

from analytics.policy_sections import BreakerPolicy

GROWTH_A_MINUTE = 1.1
"""Slower than harm shows: it takes seven minutes to undo one halving."""


class Pace:
    """Of one replica."""

    def __init__(self) -> None:
        self._factor = 1.0
        self._before_ms: int | None = None

    def halve(self) -> None:
        """It did harm."""
        self._factor /= 2
        self._before_ms = None

    def passed(self, at_ms: int) -> None:
        """Time passed in which warm-ups could run and did no harm."""
        if self._before_ms is not None:
            self._factor = min(1.0, self._factor * GROWTH_A_MINUTE ** (max(0, at_ms - self._before_ms) / 60_000))
        self._before_ms = at_ms

    def spent(self, displaced_blocks: float, blocks_total: int | None, policy: BreakerPolicy) -> bool:
        """Whether enough has left for warm-ups.

        Args:
            displaced_blocks: of the last minute.
            blocks_total: of the cache; where it is not told, nothing is too much.
        """
        if blocks_total is None:
            return False
        return displaced_blocks >= self._factor * policy.displaced_share * blocks_total
