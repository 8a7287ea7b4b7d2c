"""One pool's open commands: what stops them, what ends them, and when their records may be committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analytics.policy import PolicyBook
from connectors.metrics import SILENT, MetricSink
from connectors.redis.base import AsyncBlobs, Ledger
from executor.admission import braked, held_by_freeze
from executor.braking import Braking
from executor.charges import Charges
from executor.commits import CommitTracker
from executor.ledger_keeper import LedgerKeeper
from executor.memory import Published, Recent
from executor.orders import Order, Orders, StopCause, Work
from executor.outcomes import Ending
from executor.publisher import Publisher
from executor.replicas import departed
from executor.settle import Settler
from executor.waiting import WaitingLine
from schemas import OutcomeReason


@dataclass(frozen=True)
class PoolTools:
    """What a pool and its entrance work with.

    Attributes:
        book: the running policy.
        cancelled: commands that were taken back, whether they were seen or not.
        shadow: whether this executor applies nothing.
        braking: what holds warm-ups back.
    """

    book: PolicyBook
    ledger: Ledger
    keeper: LedgerKeeper
    published: Published
    cancelled: Recent[str, None]
    blobs: AsyncBlobs
    publisher: Publisher
    charges: Charges
    now_ms: Callable[[], int]
    shadow: bool
    braking: Braking
    metrics: MetricSink = SILENT


class Pool:
    """The open commands of one pool. They come in by its entrance (`executor.entrance`)."""

    def __init__(self, tools: PoolTools, line: WaitingLine, settler: Settler, tracker: CommitTracker) -> None:
        self.orders = Orders()
        self._tools = tools
        self._line = line
        self._settler = settler
        self._tracker = tracker

    @property
    def waiting(self) -> int:
        """How many works wait for their turn."""
        return len(self._line)

    def put(self, work: Work) -> None:
        """An admitted work waits for its turn; what a full line turns away for it ends."""
        turned_away = self._line.put(work)
        if turned_away is not None:
            self.end(turned_away, Ending("rejected", OutcomeReason.QUEUE_FULL))

    def stop(self, command_ids: Sequence[str], cause: StopCause) -> int:
        """Drops what waits of these commands and closes what runs; returns how many works that were."""
        works = [
            work
            for command_id in command_ids
            if (order := self.orders.find(command_id)) is not None
            for work in order.works
        ]
        return sum(self._stop(work, cause) for work in works)

    def freeze(self) -> int:
        """Drops and closes what a freeze of its scope holds back; returns how many works that were."""
        works = (work for work in self.orders.works() if held_by_freeze(work.command))
        frozen = [work for work in works if self._tools.book.frozen(work.command.scope)]
        return sum(self._stop(work, "frozen") for work in frozen)

    def part_with(self, replica: str) -> int:
        """A replica takes no more warm-ups: what waits for it and was not begun there ends; returns how many works
        that were."""
        works = [work for work in self.orders.works(("waiting",)) if work.replica == replica and not work.begun]
        removed = [work for work in works if self._line.remove(work)]
        for work in removed:
            self.end(work, departed(taken_over=False))
        return len(removed)

    def brake(self, replica: str) -> int:
        """Turns away what a replica's breaker refuses now, and closes what of it runs there; returns how many works.
        What somebody began before waits on: it may be in the engine."""
        works = [work for work in self.orders.works() if work.replica == replica and not work.begun]
        refused = [work for work in works if self._tools.braking.refuses(work.command, replica)]
        return sum(self._stop(work, "braked") for work in refused)

    def end(self, work: Work, ending: Ending) -> None:
        """Settles a work that was admitted and never taken."""
        now_ms = self._tools.now_ms()
        self._tools.charges.give_back(work, ending)
        self._settler.settle(work, ending, now_ms, now_ms - work.arrived_ms)

    def gone(self, work: Work) -> bool:
        """Whether its partitions have gone elsewhere while Redis was asked; then it is dropped."""
        if any(self._tracker.held(place) for place in work.order.places):
            return False
        self._drop(work)
        self._close_if_done(work.order)
        return True

    def revoked(self) -> None:
        """Partitions have gone elsewhere: what waits of them is dropped, without an outcome. What runs goes on; the new
        owner finds it begun by a holder that lives, and waits for its outcome."""
        for order in self.orders:
            if any(self._tracker.held(place) for place in order.places):
                continue
            for work in order.works:
                if work.stage == "waiting" and self._line.remove(work):
                    self._drop(work)
            self._close_if_done(order)

    def finished(self, order: Order) -> None:
        """Every work of an order is settled: its records may be committed."""
        for place in order.places:
            self._tracker.finished(place)
        self.orders.close(order)

    def settled(self, order: Order) -> None:
        """A work of an order is settled."""
        if order.finished:
            self.finished(order)
        else:
            self._close_if_done(order)

    def _drop(self, work: Work) -> None:
        self._tools.charges.give_all_back(work)
        work.stage = "dropped"

    def _stop(self, work: Work, cause: StopCause) -> bool:
        if work.stage == "running":
            work.stop_with(cause)
            return True
        if work.stage != "waiting" or not self._line.remove(work):
            return False
        if cause == "frozen":
            reasons = "; ".join(self._tools.book.frozen(work.command.scope))
            self.end(work, Ending("rejected", OutcomeReason.FROZEN, error=reasons))
        elif cause == "braked":
            self.end(work, braked(self._tools.braking.refuses(work.command, work.replica)))
        else:
            self.end(work, Ending("cancelled", OutcomeReason.CANCELLED))
        return True

    def _close_if_done(self, order: Order) -> None:
        if all(work.stage in ("dropped", "settled") for work in order.works):
            self.orders.close(order)
