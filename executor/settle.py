"""Settling: publish the outcome, then close the ledger, then let the offset be committed (steps 7, 8, 9).

The order is what makes a crash harmless. Outcomes are the truth and the ledger is their cache: who dies in between
leaves a `started` entry that the next one finds overruled by the published outcome. The other way round a finished
entry could stand for an outcome that nobody ever saw.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from connectors.metrics import SILENT, MetricSink
from connectors.redis.base import Ledger
from executor.failpoints import reached
from executor.memory import Published
from executor.orders import Order, Work
from executor.outcomes import Ending, outcome_of
from executor.publisher import Publisher
from schemas import StackFault, TransientFault, WarmupOutcome

log = logging.getLogger(__name__)
outcome_log = logging.getLogger("executor.outcome")

BATCH = 200
PAUSE_AFTER_FAULT_S = 0.25
PAUSE_AFTER_REFUSAL_S = 5.0


@dataclass(frozen=True)
class _Settled:
    work: Work
    outcome: WarmupOutcome


class Settler:
    """Takes endings and brings them out, in batches.

    Args:
        holder: name of this life of this process in the ledger.
        settled: told of the order of each work that is settled.
        store_fault: told when Redis did not answer, so that its memory is doubted.
    """

    def __init__(
        self,
        publisher: Publisher,
        ledger: Ledger,
        published: Published,
        holder: str,
        settled: Callable[[Order], None],
        store_fault: Callable[[], None] = lambda: None,
        metrics: MetricSink = SILENT,
    ) -> None:
        self._publisher = publisher
        self._ledger = ledger
        self._published = published
        self._holder = holder
        self._settled = settled
        self._store_fault = store_fault
        self._metrics = metrics
        self._queue: asyncio.Queue[_Settled] = asyncio.Queue()
        self._unsettled = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def settle(self, work: Work, ending: Ending, now_ms: int, queued_ms: float = 0.0, apply_ms: float = 0.0) -> None:
        """Takes the ending of a work. Returns at once; `drained` tells when all is out."""
        outcome = outcome_of(work.command, work.replica, ending, now_ms, queued_ms, apply_ms)
        self._unsettled += 1
        self._idle.clear()
        self._queue.put_nowait(_Settled(work, outcome))

    def already(self, work: Work) -> None:
        """This work's outcome is out, by whomever: nothing to publish."""
        work.stage = "settled"
        self._settled(work.order)

    async def drained(self) -> None:
        """Waits until everything taken is published and in the ledger."""
        await self._idle.wait()

    async def run(self) -> None:
        """Works until cancelled. A broker or a Redis that does not answer is asked again for as long as it takes."""
        while True:
            batch = [await self._queue.get()]
            while len(batch) < BATCH and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            await self._publish([settled.outcome for settled in batch])
            reached("outcome_published")
            await self._close_ledger(batch)
            reached("ledger_finished")
            for done in batch:
                self.already(done.work)
            self._unsettled -= len(batch)
            if self._unsettled == 0:
                self._idle.set()

    async def _publish(self, outcomes: list[WarmupOutcome]) -> None:
        begun, missing, dated = time.monotonic(), outcomes, True
        while missing:
            try:
                missing = await self._publisher.outcomes(missing, dated)
            except TransientFault as fault:
                log.warning("outcomes not published yet: %s", fault)
                await asyncio.sleep(PAUSE_AFTER_FAULT_S)
                continue
            if missing:
                # A broker refuses times that are far from its own: first the time of sending instead of the time of
                # ending, then patience, since only a clock that is set right helps.
                await asyncio.sleep(PAUSE_AFTER_FAULT_S if dated else PAUSE_AFTER_REFUSAL_S)
                dated = False
        self._metrics.observe("stoker_executor_publish_seconds", time.monotonic() - begun)
        for outcome in outcomes:
            self._published.add(outcome.outcome_id, outcome.status)
            self._tell(outcome)

    async def _close_ledger(self, batch: list[_Settled]) -> None:
        while True:
            try:
                await asyncio.gather(*(self._finish(settled.outcome) for settled in batch))
                return
            except (TransientFault, StackFault) as fault:
                log.warning("ledger not written yet: %s", fault)
                self._store_fault()
                await asyncio.sleep(PAUSE_AFTER_FAULT_S)

    async def _finish(self, outcome: WarmupOutcome) -> None:
        await self._ledger.finish(outcome.command_id, outcome.replica, self._holder, outcome.status)

    def _tell(self, outcome: WarmupOutcome) -> None:
        self._metrics.count(
            "stoker_executor_outcomes_total", pool=outcome.pool, status=outcome.status, reason=outcome.reason.value
        )
        outcome_log.info(
            "outcome",
            extra={
                "fields": {
                    "command_id": outcome.command_id,
                    "target_key": outcome.target_key,
                    "scope": outcome.scope,
                    "pool": outcome.pool,
                    "replica": outcome.replica,
                    "arm": outcome.arm,
                    "status": outcome.status,
                    "reason": outcome.reason.value,
                    "queued_ms": outcome.queued_ms,
                    "apply_ms": outcome.apply_ms,
                    "tokens_warmed": outcome.tokens_warmed,
                    "tokens_already_resident": outcome.tokens_already_resident,
                    "error": outcome.error,
                }
            },
        )
