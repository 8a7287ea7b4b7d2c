"""The waiting line: a bounded priority queue by class, then priority, then age (step 5)."""

from __future__ import annotations

import asyncio
import contextlib
from bisect import insort
from collections import defaultdict
from collections.abc import Callable

from executor.orders import Work
from schemas.warmup_command import QOS_RANK

Turn = tuple[int, int, int, int]
HELD_LOOK_MS = 1_000
"""How often works that are held back are looked at: one of them may have expired."""


def turn(work: Work, arrival: int) -> Turn:
    """Sort key: smaller is served earlier. Older by issue time, then by arrival."""
    command = work.command
    return QOS_RANK[command.qos], -command.priority, command.issued_at_ms, arrival


class WaitingLine:
    """Works that are admitted and not yet taken, one line a replica, bounded over all of them together.

    A work whose `not_before_ms` has not come keeps its place but is passed over, and so is one that is held back.

    Args:
        bound: how many works may wait.
        now_ms: wall clock.
        admits: whether a work may begin now; where that changes, `look_again` is to be called.
    """

    def __init__(self, bound: int, now_ms: Callable[[], int], admits: Callable[[Work], bool] = lambda _: True) -> None:
        self._bound = bound
        self._now_ms = now_ms
        self._admits = admits
        self._lines: dict[str, list[tuple[Turn, Work]]] = defaultdict(list)
        self._later: dict[Work, int] = {}
        self._holding: set[str] = set()
        self._arrivals = 0
        self._changed: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def waiting(self, replica: str) -> int:
        """How many works wait for a replica."""
        return len(self._lines.get(replica, ()))

    def forget(self, replica: str) -> None:
        """A replica is gone and nothing waits for it."""
        if not self.waiting(replica):
            self._lines.pop(replica, None)
            self._changed.pop(replica, None)

    def put(self, work: Work) -> Work | None:
        """Lets a work wait. When the line is over its bound, the lowest is removed and returned; it may be this one."""
        self._insert(work)
        if len(self) <= self._bound:
            return None
        _, lowest = max((line[-1] for line in self._lines.values() if line), key=lambda entry: entry[0])
        self.remove(lowest)
        return lowest

    def put_back(self, work: Work, not_before_ms: int) -> None:
        """Lets a work that was taken wait again until a wall time; never turned away."""
        self._later[work] = not_before_ms
        self._insert(work)

    def _insert(self, work: Work) -> None:
        self._arrivals += 1
        work.stage = "waiting"
        insort(self._lines[work.replica], (turn(work, self._arrivals), work), key=lambda entry: entry[0])
        if work.replica not in self._holding or self._due_ms(work) > self._now_ms() or self._admits(work):
            self._changed[work.replica].set()

    def look_again(self, replica: str) -> None:
        """What was held back at a replica may begin now."""
        if replica in self._changed:
            self._changed[replica].set()

    def remove(self, work: Work) -> bool:
        """Takes a work out of the line; False if it does not wait."""
        line = self._lines[work.replica]
        for index, (_, waiting) in enumerate(line):
            if waiting is work:
                del line[index]
                self._later.pop(work, None)
                return True
        return False

    def next_of(self, replica: str) -> Work | None:
        """The first work of a replica whose time has come, taken out of the line; None if there is none now."""
        now_ms = self._now_ms()
        for index, (_, work) in enumerate(self._lines[replica]):
            if self._due_ms(work) <= now_ms and self._admits(work):
                del self._lines[replica][index]
                self._later.pop(work, None)
                return work
        return None

    async def take(self, replica: str) -> Work:
        """Waits for the next work of a replica."""
        changed = self._changed[replica]
        while True:
            changed.clear()
            work = self.next_of(replica)
            if work is not None:
                return work
            await self._until_change(replica, changed)

    async def _until_change(self, replica: str, changed: asyncio.Event) -> None:
        now_ms = self._now_ms()
        left = [self._due_ms(work) - now_ms for _, work in self._lines[replica]]
        # What is due and was not taken is held back; while there is any, one more that is needs no look.
        self._holding.discard(replica)
        if left and min(left) <= 0:
            self._holding.add(replica)
        if not left:
            await changed.wait()
            return
        left_ms = min(each if each > 0 else HELD_LOOK_MS for each in left)
        # Not wait_for: in Python 3.11 it can swallow a cancellation that comes together with the event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_ms / 1000):
                await changed.wait()

    def _due_ms(self, work: Work) -> int:
        return max(work.command.not_before_ms, self._later.get(work, 0))
