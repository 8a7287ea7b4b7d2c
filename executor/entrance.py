"""A command's way into its pool, from record to waiting line: decode, look into the ledger, admit (steps 3, 4, 5)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from connectors.kafka.base import Record
from executor.admission import Circumstances, Go, Nothing, Seen, admit, braked, held_by_freeze
from executor.commits import CommitTracker, Place
from executor.expected import Expected
from executor.failpoints import reached
from executor.orders import Work
from executor.outcomes import Ending
from executor.pool import Pool, PoolTools
from executor.replicas import departed, replicas_for
from executor.settle import Settler
from schemas import (
    Cancel,
    DeadReason,
    Embedding,
    OutcomeReason,
    PoisonMessage,
    Prefix,
    Response,
    StackFault,
    StokerError,
    TransientFault,
    WarmupCommand,
    decode,
)
from schemas.canonical import outcome_id

log = logging.getLogger(__name__)

PAUSE_AFTER_FAULT_S = 0.25
EXPECTED_LOOK_S = 0.25
"""How often it is seen whether replicas have come that works are kept for."""
CONTENT_SPARE_MS = 60_000
"""Content that a queued command needs is made to live so much longer than the command."""


class Entrance:
    """Admits what one pool's intake read.

    Args:
        name: of the pool.
        replicas: names of the pool's replicas that take warm-ups now; of a Redis pool, its own name.
        absent: told of a replica that is none of these, and for which a work waits that was begun there.
        expected: what is kept for replicas that may come; may_come: whether one may that is none of these.
        heard: told of each command that is this pool's.
    """

    def __init__(
        self,
        name: str,
        replicas: Callable[[], Sequence[str]],
        tools: PoolTools,
        pool: Pool,
        settler: Settler,
        tracker: CommitTracker,
        absent: Callable[[str], None],
        expected: Expected,
        may_come: Callable[[str], bool],
        heard: Callable[[WarmupCommand], None] = lambda _: None,
    ) -> None:
        self._name = name
        self._replicas = replicas
        self._tools = tools
        self._pool = pool
        self._settler = settler
        self._tracker = tracker
        self._absent = absent
        self._expected = expected
        self._may_come = may_come
        self._heard = heard
        self._inbox: asyncio.Queue[list[tuple[Record, Place]]] = asyncio.Queue()

    def deliver(self, batch: list[tuple[Record, Place]]) -> None:
        """Takes what the intake read. Call it on the event loop."""
        self._inbox.put_nowait(batch)

    async def run(self) -> None:
        """Admits until cancelled. What was read and not admitted by then comes again."""
        while True:
            for record, place in await self._batch():
                if self._tracker.held(place):
                    await self._taken(record, place)
            for work in self._expected.release(self._replicas(), self._tools.now_ms()):
                await self._again(work)
            waiting = self._pool.waiting + len(self._expected)
            self._tools.metrics.level("stoker_executor_waiting_works", waiting, pool=self._name)

    async def _batch(self) -> list[tuple[Record, Place]]:
        """What was read; nothing now and then, while works are kept for replicas that may come."""
        if not len(self._expected):
            return await self._inbox.get()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EXPECTED_LOOK_S):
                return await self._inbox.get()
        return []

    async def _again(self, work: Work) -> None:
        """Admits a work that was kept. What breaks on it ends it, since nothing else may wait for a cure.

        Raises:
            StokerError: see `_taken`.
        """
        try:
            await self._admit(work)
        except StokerError:
            raise
        except Exception as error:
            log.exception("%s on %s cannot be admitted", work.command.command_id, work.replica)
            self._tools.charges.give_all_back(work)
            self._pool.end(work, Ending("failed", OutcomeReason.UNSUPPORTED, error=type(error).__name__))

    async def _taken(self, record: Record, place: Place) -> None:
        """Takes a record; what breaks on it becomes a dead letter, since the next ones must not wait for a cure.

        Raises:
            StokerError: the fault lies outside this record; nothing of it is lost, for its offset stays uncommitted.
        """
        try:
            await self._take(record, place)
            return
        except PoisonMessage as error:
            poison = error
        except StokerError:
            raise
        except Exception as error:
            log.exception("command at %s/%s/%s cannot be admitted", record.topic, record.partition, record.offset)
            poison = PoisonMessage(DeadReason.OUT_OF_RANGE, detail=f"not admitted: {type(error).__name__}")
        await self._bury(record, poison)
        order = next((order for order in self._pool.orders if place in order.places), None)
        if order is None:
            self._tracker.finished(place)
            return
        for work in order.works:
            if work.stage == "new" and work not in self._expected:
                self._tools.charges.give_all_back(work)
                work.stage = "settled"
        self._pool.settled(order)

    async def _take(self, record: Record, place: Place) -> None:
        command = await self._decoded(record)
        if command is None or command.pool != self._name:
            self._tracker.finished(place)
            return
        reached("command_consumed")
        self._tools.metrics.count("stoker_executor_commands_total", pool=self._name)
        self._heard(command)
        names = (self._name,) if isinstance(command.target, Cancel) else replicas_for(command, self._replicas())
        order, new = self._pool.orders.take(command, place, names, self._tools.now_ms())
        works = order.works if new else [work for work in order.works if work.stage == "dropped"]
        for work in works:
            await self._admit(work)
        if order.finished:
            self._pool.finished(order)

    async def _decoded(self, record: Record) -> WarmupCommand | None:
        if record.value is None:
            return None
        try:
            return decode(record.value, WarmupCommand)
        except PoisonMessage as poison:
            log.warning("command at %s/%s/%s not read: %s", record.topic, record.partition, record.offset, poison)
            await self._bury(record, poison)
            return None

    async def _bury(self, record: Record, poison: PoisonMessage) -> None:
        self._tools.metrics.count("stoker_executor_dead_letters_total", reason=poison.reason.value)
        while True:
            try:
                await self._tools.publisher.dead_letter(record, poison, self._tools.now_ms())
                return
            except TransientFault as fault:
                log.warning("dead letter not published yet: %s", fault)
                await asyncio.sleep(PAUSE_AFTER_FAULT_S)

    async def _admit(self, work: Work) -> None:
        command, tools = work.command, self._tools
        seen = await self._seen(work)
        if self._pool.gone(work):
            return
        if isinstance(command.target, Cancel) and seen != "ended":
            self._settler.settle(work, self._take_back(command), tools.now_ms())
            return
        verdict = admit(
            command,
            Circumstances(
                now_ms=tools.now_ms(),
                seen=seen,
                cancelled=command.command_id in tools.cancelled,
                frozen=tools.book.frozen(command.scope),
                shadow=tools.shadow,
                replica_known=work.replica in self._replicas(),
                braked=tools.braking.refuses(command, work.replica),
            ),
        )
        if isinstance(verdict, Go) and not verdict.begun_before and not tools.charges.take(work, tools.now_ms()):
            verdict = Ending("rejected", OutcomeReason.QUOTA)
        reached("command_admitted")
        match verdict:
            case Nothing():
                tools.metrics.count("stoker_executor_duplicates_total", pool=self._name)
                self._settler.already(work)
            case Ending():
                if not self._kept(work, verdict):
                    self._settler.settle(work, verdict, tools.now_ms())
            case Go():
                await self._let_wait(work, verdict.begun_before)

    def _kept(self, work: Work, ending: Ending) -> bool:
        """Whether a work is kept instead of ended, because its replica may be heard of in a moment."""
        missing = ending.reason is OutcomeReason.NO_REPLICA and self._may_come(work.replica)
        return missing and self._expected.keep(work, self._tools.now_ms())

    async def _seen(self, work: Work) -> Seen:
        command_id, tools = work.command.command_id, self._tools
        while True:
            await tools.keeper.assured()
            if outcome_id(command_id, work.replica) in tools.published:
                return "ended"
            try:
                state = await tools.ledger.read(command_id, work.replica)
                break
            except (TransientFault, StackFault) as fault:
                log.warning("ledger does not answer: %s", fault)
                tools.keeper.doubt()
                await asyncio.sleep(PAUSE_AFTER_FAULT_S)
        if state is None:
            return "absent"
        return "started" if state == "started" else "ended"

    async def _let_wait(self, work: Work, begun_before: bool) -> None:
        if work.command.supersedes is not None:
            self._pool.stop([work.command.supersedes], "cancelled")
            self._tools.cancelled.put(work.command.supersedes, None)
        await self._keep_content(work.command)
        if self._pool.gone(work):
            return
        work.begun = begun_before
        if begun_before and work.replica not in self._replicas():
            self._absent(work.replica)
        overtaken = None if begun_before else self._overtaken(work)
        if overtaken is not None:
            self._pool.end(work, overtaken)
            return
        self._pool.put(work)

    def _overtaken(self, work: Work) -> Ending | None:
        """A Cancel, a freeze or a departure that was heard while Redis was asked found nothing to stop yet: it counts
        here."""
        command = work.command
        if work.replica not in self._replicas():
            return departed(taken_over=False)
        if command.command_id in self._tools.cancelled:
            return Ending("cancelled", OutcomeReason.CANCELLED)
        reasons = self._tools.book.frozen(command.scope) if held_by_freeze(command) else ()
        if reasons:
            return Ending("rejected", OutcomeReason.FROZEN, error="; ".join(reasons))
        reasons = self._tools.braking.refuses(command, work.replica)
        return braked(reasons) if reasons else None

    async def _keep_content(self, command: WarmupCommand) -> None:
        """Makes the content live as long as the command may wait. If Redis is away the apply will say so."""
        target = command.target
        hashes: list[str] = []
        if isinstance(target, Prefix):
            hashes = [segment.hash for segment in target.segments if segment.content_ref is None]
        elif isinstance(target, Embedding):
            hashes = [target.query_sha256]
        elif isinstance(target, Response):
            asked = target.prompt.segments if target.prompt is not None else ()
            hashes = [target.query_sha256, *([] if target.response_ref is None else [target.response_ref])]
            hashes += [segment.hash for segment in asked if segment.content_ref is None]
        left_ms = max(0, command.expires_at_ms - self._tools.now_ms())
        try:
            await self._tools.blobs.renew(command.scope, hashes, left_ms + CONTENT_SPARE_MS)
        except (TransientFault, StackFault) as fault:
            log.warning("content of %s not prolonged: %s", command.target_key, fault)

    def _take_back(self, command: WarmupCommand) -> Ending:
        assert isinstance(command.target, Cancel)
        if command.shadow or self._tools.shadow:
            return Ending("shadow", OutcomeReason.SHADOW)
        for command_id in command.target.command_ids:
            self._tools.cancelled.put(command_id, None)
        stopped = self._pool.stop(command.target.command_ids, "cancelled")
        log.info("cancel", extra={"fields": {"command_id": command.command_id, "stopped": stopped}})
        return Ending("applied", OutcomeReason.DONE)
