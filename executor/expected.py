"""Works for replicas that nobody has told this executor of yet: kept for a moment, since another may know more. Pure.

Executors hear of a new replica seconds apart. A command for it may come to one that does not know it yet.
"""

from __future__ import annotations

from collections.abc import Container

from executor.orders import Work

EXPECTED_BOUND = 1_000
"""Works kept in one pool: more than a planner asks of a new replica at a tick."""


class Expected:
    """The works of one pool that wait for their replica to be heard of. They are not admitted and cost no quota.

    Args:
        wait_ms: how long one is kept after its command was read.
        bound: how many may be kept.
    """

    def __init__(self, wait_ms: int, bound: int = EXPECTED_BOUND) -> None:
        self._wait_ms = wait_ms
        self._bound = bound
        self._works: dict[Work, None] = {}

    def __len__(self) -> int:
        return len(self._works)

    def __contains__(self, work: Work) -> bool:
        return work in self._works

    def keep(self, work: Work, now_ms: int) -> bool:
        """Keeps a work; False if its time is over, or too many are kept."""
        if now_ms >= self._until_ms(work) or len(self._works) >= self._bound:
            return False
        self._works[work] = None
        return True

    def release(self, replicas: Container[str], now_ms: int) -> list[Work]:
        """Takes out those whose replica is there now and those whose time is over, the oldest first."""
        released = [work for work in self._works if work.replica in replicas or now_ms >= self._until_ms(work)]
        for work in released:
            del self._works[work]
        return released

    def _until_ms(self, work: Work) -> int:
        return min(work.arrived_ms + self._wait_ms, work.command.expires_at_ms)
