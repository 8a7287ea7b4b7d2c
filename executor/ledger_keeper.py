"""Keeping the ledger true: Redis is its cache, warmup.outcomes is what it is rebuilt from (step 2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from connectors.kafka.base import Consumer
from connectors.redis.base import Ledger
from connectors.redis.keys import ledger_key
from executor.history import read_since
from executor.memory import Published
from schemas import PoisonMessage, StackFault, TransientFault, WarmupOutcome, decode
from schemas.canonical import outcome_id
from schemas.warmup_outcome import Status

log = logging.getLogger(__name__)

BATCH = 500
PAUSE_AFTER_FAULT_S = 0.5

Entry = tuple[str, str, Status]


class LedgerKeeper:
    """Restores the ledger at start, and again whenever Redis may have lost it.

    Args:
        make_consumer: a consumer without a group.
        topic: full name of warmup.outcomes.
        now_ms: wall clock.
        hours: how far back outcomes count.
    """

    def __init__(
        self,
        ledger: Ledger,
        published: Published,
        make_consumer: Callable[[], Consumer],
        topic: str,
        now_ms: Callable[[], int],
        hours: float,
    ) -> None:
        self._ledger = ledger
        self._published = published
        self._make_consumer = make_consumer
        self._topic = topic
        self._now_ms = now_ms
        self._span_ms = int(hours * 3_600_000)
        self._doubted = True
        self._doubts = asyncio.Event()
        self._rebuilding = asyncio.Lock()

    @property
    def trusted(self) -> bool:
        """Whether the ledger is known to hold every outcome of the span."""
        return not self._doubted

    def doubt(self) -> None:
        """Redis did not answer, or forgot what it was told: it may have started anew, without its data."""
        self._doubted = True
        self._doubts.set()

    async def run(self) -> None:
        """Rebuilds as soon as there is doubt, until cancelled, so that the next command need not wait for it."""
        while True:
            await self._doubts.wait()
            self._doubts.clear()
            await self.assured()

    async def assured(self) -> None:
        """Returns once the ledger can be believed; rebuilds it if it is doubted. Asks for as long as it takes."""
        if not self._doubted:
            return
        async with self._rebuilding:
            while self._doubted:
                self._doubted = False
                try:
                    await self._rebuild()
                except (TransientFault, StackFault) as fault:
                    self._doubted = True
                    log.warning("the ledger is not rebuilt yet: %s", fault)
                    await asyncio.sleep(PAUSE_AFTER_FAULT_S)

    async def _rebuild(self) -> None:
        outcomes = await asyncio.to_thread(self._read)
        entries = iter(outcomes)
        restored = 0
        while batch := list(islice(entries, BATCH)):
            restored += await self._ledger.restore(batch)
        for command, replica, status in outcomes:
            self._published.add(outcome_id(command, replica), status)
        log.info("ledger rebuilt", extra={"fields": {"outcomes": restored}})

    def _read(self) -> list[Entry]:
        with self._make_consumer() as consumer:
            return list(self._entries(consumer))

    def _entries(self, consumer: Consumer) -> Iterator[Entry]:
        since_ms = self._now_ms() - self._span_ms
        records = read_since(consumer, self._topic, since_ms)
        yield from latest(decoded(record.value for record in records if record.timestamp_ms >= since_ms))


def decoded(values: Iterable[bytes | None]) -> Iterator[WarmupOutcome]:
    """The outcomes among these records; what cannot be read is nobody's outcome."""
    for value in values:
        if value is None:
            continue
        try:
            outcome = decode(value, WarmupOutcome)
            ledger_key(outcome.command_id, outcome.replica)
            bytes.fromhex(outcome.outcome_id)
        except (PoisonMessage, ValueError) as error:
            log.warning("an outcome could not be read: %s", error)
            continue
        yield outcome


def latest(outcomes: Iterable[WarmupOutcome]) -> Iterator[Entry]:
    """One entry for each outcome id: the last one, but `applied` is never replaced by `resident`."""
    held: dict[str, Entry] = {}
    for outcome in outcomes:
        before = held.get(outcome.outcome_id)
        if before is not None and before[2] == "applied" and outcome.status == "resident":
            continue
        held[outcome.outcome_id] = (outcome.command_id, outcome.replica, outcome.status)
    yield from held.values()
