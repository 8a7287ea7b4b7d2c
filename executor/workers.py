"""Workers: they take work in turn, claim it in the ledger, apply it, and hand its ending on (step 6)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from connectors.metrics import SILENT, MetricSink
from connectors.redis.base import Already, Ledger
from executor.admission import held_by_freeze, late
from executor.apply.patience import Patience
from executor.failpoints import reached
from executor.ledger_keeper import LedgerKeeper
from executor.memory import Published
from executor.orders import Work
from executor.outcomes import Ending, first_try
from executor.replicas import closed_by_departure, departed
from executor.settle import Settler
from executor.tasks import ended
from executor.waiting import WaitingLine
from schemas import OutcomeReason, StackFault, TransientFault, WarmupCommand
from schemas.canonical import outcome_id

log = logging.getLogger(__name__)

LOOK_AGAIN_MS = 250
"""Pause before asking again for work that another executor has in hand."""
PAUSE_AFTER_FAULT_S = 0.25
CLOSING_S = 5.0

Apply = Callable[[WarmupCommand, str, float], Awaitable[Ending]]
"""One attempt at a command on a replica within so many seconds."""


@dataclass(frozen=True)
class WorkerTools:
    """What the workers of a pool share.

    Attributes:
        takes: whether a replica is there and takes warm-ups.
        frozen: the reasons why a scope may not act now.
        cancelled: whether a command was taken back.
        unmet: how a work ends that lacks what it needs (`after`), if it does.
        began, ended: told of each work that is in hand, and of its end.
        used: told how a work ended, so that what it was charged and did not spend is given back.
        unused: told of one that somebody else has settled, so that all of it is.
    """

    line: WaitingLine
    ledger: Ledger
    keeper: LedgerKeeper
    published: Published
    settler: Settler
    holder: str
    apply: Apply
    patience: Patience
    now_ms: Callable[[], int]
    takes: Callable[[str], bool]
    frozen: Callable[[str], tuple[str, ...]]
    cancelled: Callable[[str], bool]
    unmet: Callable[[Work], Ending | None]
    used: Callable[[Work, Ending], None]
    unused: Callable[[Work], None]
    began: Callable[[Work], None]
    ended: Callable[[Work, Ending | None], None]
    metrics: MetricSink = SILENT


class Workers:
    """The workers of one pool.

    Args:
        places: how many works may run at once on each replica.
        replicas: those that are there from the beginning.
    """

    def __init__(self, tools: WorkerTools, places: int, replicas: Iterable[str]) -> None:
        self._tools = tools
        self._places = places
        self._open = set(replicas)
        self._left: set[str] = set()
        self._serving: dict[str, list[asyncio.Task[None]]] = {}
        self._winding: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._running: set[Work] = set()

    @property
    def running(self) -> int:
        """Works in hand."""
        return len(self._running)

    def open(self, replica: str) -> None:
        """A replica takes work from now on."""
        self._open.add(replica)
        self._changed.set()

    def close(self, replica: str) -> None:
        """No further work is taken for a replica but what was begun there; what runs goes on."""
        self._open.discard(replica)
        self.wind_up(replica)

    def wind_up(self, replica: str) -> None:
        """A replica is not there, and work that was begun on it waits: it needs an outcome nevertheless."""
        self._left.add(replica)
        self._changed.set()

    async def let_go(self, replica: str) -> None:
        """Closes what runs on a replica."""
        works = [work for work in self._running if work.replica == replica]
        for work in works:
            work.stop_with("departed")
        tasks = [work.task for work in works if work.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSING_S)

    async def run(self) -> None:
        """Works until cancelled. Cancelling takes no further work; what runs is left to `finish`."""
        try:
            while True:
                self._changed.clear()
                await self._staff()
                changed = asyncio.create_task(self._changed.wait())
                try:
                    await asyncio.wait([changed, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                for task in self._tasks:
                    if task.done():
                        task.result()
        finally:
            await ended(self._tasks)

    @property
    def _tasks(self) -> list[asyncio.Task[None]]:
        return [*(task for tasks in self._serving.values() for task in tasks), *self._winding.values()]

    async def _staff(self) -> None:
        """Each open replica has its workers; each other one has one, for as long as work that was begun there waits."""
        for replica in self._serving.keys() - self._open:
            await ended(self._serving.pop(replica))
        for replica, task in list(self._winding.items()):
            if replica in self._open or task.done():
                await ended([self._winding.pop(replica)])
        for replica in self._open - self._serving.keys():
            self._serving[replica] = [asyncio.create_task(self._serve(replica)) for _ in range(self._places)]
        for replica in self._left - self._open - self._winding.keys():
            if self._tools.line.waiting(replica):
                self._winding[replica] = asyncio.create_task(self._wind_up(replica))
            else:
                self._left.discard(replica)
                self._tools.line.forget(replica)

    async def _serve(self, replica: str) -> None:
        while True:
            await self._take(replica)

    async def _wind_up(self, replica: str) -> None:
        while self._tools.line.waiting(replica):
            await self._take(replica)

    async def _take(self, replica: str) -> None:
        work = await self._tools.line.take(replica)
        work.stage = "running"
        self._tools.began(work)
        self._running.add(work)
        work.task = asyncio.create_task(self._handle(work))
        # Shielded: a drain ends the taking of work, not the work.
        await asyncio.shield(asyncio.gather(work.task, return_exceptions=True))

    async def finish(self, timeout_s: float) -> None:
        """Lets what runs come to its end; what has not by then is closed and left for another executor."""
        tasks = {work.task for work in self._running if work.task is not None}
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)
        for work in list(self._running):
            work.stop_with("draining")
        tasks = {work.task for work in self._running if work.task is not None}
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSING_S)

    async def _handle(self, work: Work) -> None:
        taken_ms, taken = self._tools.now_ms(), time.monotonic()
        ending: Ending | None = None
        try:
            reached("command_taken")
            ending = await self._ended(work)
        except asyncio.CancelledError:
            ending = _stopped(work)
        except Exception as error:
            log.exception("applying %s failed in our own code", work.command.command_id)
            ending = Ending("failed", OutcomeReason.UNVERIFIED, error=type(error).__name__)
        finally:
            self._running.discard(work)
            self._tools.ended(work, ending)
        if ending is None:
            if work.stage == "settled":
                self._tools.unused(work)
            return
        apply_ms = (time.monotonic() - taken) * 1000
        self._tools.used(work, ending)
        self._tools.metrics.observe("stoker_executor_apply_seconds", apply_ms / 1000, pool=work.command.pool)
        kind = work.command.target_key.partition(":")[0]
        self._tools.metrics.observe("cache_warmup_duration_seconds", apply_ms / 1000, kind=kind)
        self._tools.settler.settle(work, ending, self._tools.now_ms(), taken_ms - work.arrived_ms, apply_ms)

    async def _ended(self, work: Work) -> Ending | None:
        """How the work ended; None if somebody else settles it."""
        taken_over = await self._claimed(work)
        if taken_over is None:
            return None
        command, tools = work.command, self._tools
        lacks = None if taken_over else tools.unmet(work)
        if tools.now_ms() >= command.expires_at_ms:
            return lacks or late(taken_over)
        if not taken_over and tools.cancelled(command.command_id):
            return Ending("cancelled", OutcomeReason.CANCELLED)
        if not tools.takes(work.replica):
            return departed(taken_over)
        reasons = tools.frozen(command.scope) if held_by_freeze(command) else ()
        if reasons and not taken_over:
            return Ending("rejected", OutcomeReason.FROZEN, error="; ".join(reasons))
        if lacks is not None:
            return lacks
        reached("apply_started")
        ending = await tools.patience.spend(
            lambda seconds: tools.apply(command, work.replica, seconds), command.expires_at_ms, tools.now_ms
        )
        reached("apply_answered")
        return first_try(ending) if taken_over else ending

    async def _claimed(self, work: Work) -> bool | None:
        """Claims the work in the ledger: whether an earlier holder had begun it, or None if it is not ours to do."""
        tools, command = self._tools, work.command
        while True:
            await tools.keeper.assured()
            if outcome_id(command.command_id, work.replica) in tools.published:
                tools.settler.already(work)
                return None
            try:
                claim = await tools.ledger.begin(command.command_id, work.replica, tools.holder)
                break
            except (TransientFault, StackFault) as fault:
                log.warning("ledger does not answer: %s", fault)
                tools.keeper.doubt()
                await asyncio.sleep(PAUSE_AFTER_FAULT_S)
        if not isinstance(claim, Already):
            return claim.taken_over
        if claim.state != "started":
            tools.settler.already(work)
            return None
        if claim.holder == tools.holder:
            # Nobody else works under our name, and each work is in hand once: it was begun and let go by ourselves.
            return True
        work.begun = True
        tools.line.put_back(work, tools.now_ms() + LOOK_AGAIN_MS)
        if work.replica not in self._open:
            self.wind_up(work.replica)
        return None


def _stopped(work: Work) -> Ending | None:
    """How a work ends that was closed while it ran; None if it is left to whoever has it next."""
    if work.stop == "cancelled":
        return Ending("cancelled", OutcomeReason.CANCELLED)
    if work.stop == "frozen":
        return Ending("cancelled", OutcomeReason.FROZEN)
    if work.stop == "braked":
        return Ending("cancelled", OutcomeReason.BREAKER_OPEN)
    if work.stop == "departed":
        return closed_by_departure()
    work.stage = "dropped"
    return None
