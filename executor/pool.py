"""One pool's commands, from the record to the waiting line: decode, look into the ledger, admit (steps 3, 4, 5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analytics.policy import PolicyBook
from connectors.kafka.base import Record
from connectors.metrics import SILENT, MetricSink
from connectors.redis.base import AsyncBlobs, Ledger
from executor.admission import Circumstances, Go, Nothing, Seen, admit, braked, held_by_freeze
from executor.braking import Braking
from executor.commits import CommitTracker, Place
from executor.failpoints import reached
from executor.ledger_keeper import LedgerKeeper
from executor.memory import Published, Recent
from executor.orders import Order, Orders, StopCause, Work
from executor.outcomes import Ending
from executor.publisher import Publisher
from executor.quota import Quota
from executor.replicas import departed, replicas_for
from executor.settle import Settler
from executor.waiting import WaitingLine
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
CONTENT_SPARE_MS = 60_000
"""Content that a queued command needs is made to live so much longer than the command."""


@dataclass(frozen=True)
class PoolTools:
    """What the pools of one executor share.

    Attributes:
        book: the running policy.
        cancelled: commands that were taken back, whether they were seen or not.
        shadow: whether this executor applies nothing.
        braking: what holds warm-ups back.
        answer_tokens: the most that an answer to be generated may have beside its prompt.
    """

    book: PolicyBook
    ledger: Ledger
    keeper: LedgerKeeper
    published: Published
    cancelled: Recent[str, None]
    blobs: AsyncBlobs
    publisher: Publisher
    quota: Quota
    now_ms: Callable[[], int]
    shadow: bool
    answer_tokens: int
    braking: Braking
    metrics: MetricSink = SILENT


class Pool:
    """The open commands of one pool.

    Args:
        replicas: names of the pool's replicas that take warm-ups now; of a Redis pool, its own name.
        absent: told of a replica that is none of these, and for which a work waits that was begun there.
        heard: told of each command that is this pool's.
    """

    def __init__(
        self,
        name: str,
        replicas: Callable[[], Sequence[str]],
        tools: PoolTools,
        line: WaitingLine,
        settler: Settler,
        tracker: CommitTracker,
        absent: Callable[[str], None],
        heard: Callable[[WarmupCommand], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.orders = Orders()
        self._replicas = replicas
        self._tools = tools
        self._line = line
        self._settler = settler
        self._tracker = tracker
        self._absent = absent
        self._heard = heard
        self._inbox: asyncio.Queue[list[tuple[Record, Place]]] = asyncio.Queue()

    def deliver(self, batch: list[tuple[Record, Place]]) -> None:
        """Takes what the intake read. Call it on the event loop."""
        self._inbox.put_nowait(batch)

    async def run(self) -> None:
        """Admits until cancelled. What was read and not admitted by then comes again."""
        while True:
            batch = await self._inbox.get()
            for record, place in batch:
                if self._tracker.held(place):
                    await self._taken(record, place)
            self._tools.metrics.level("stoker_executor_waiting_works", len(self._line), pool=self.name)

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
        order = next((order for order in self.orders if place in order.places), None)
        if order is None:
            self._tracker.finished(place)
            return
        for work in order.works:
            if work.stage == "new":
                self.used(work, Ending("failed", OutcomeReason.UNSUPPORTED))
                work.stage = "settled"
        self.settled(order)

    async def _take(self, record: Record, place: Place) -> None:
        command = await self._decoded(record)
        if command is None or command.pool != self.name:
            self._tracker.finished(place)
            return
        reached("command_consumed")
        self._tools.metrics.count("stoker_executor_commands_total", pool=self.name)
        self._heard(command)
        names = (self.name,) if isinstance(command.target, Cancel) else replicas_for(command, self._replicas())
        order, new = self.orders.take(command, place, names, self._tools.now_ms())
        works = order.works if new else [work for work in order.works if work.stage == "dropped"]
        for work in works:
            await self._admit(work)
        if order.finished:
            self.finished(order)

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
        if self._gone(work):
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
        if isinstance(verdict, Go) and not verdict.begun_before and not self._charge(work):
            verdict = Ending("rejected", OutcomeReason.QUOTA)
        reached("command_admitted")
        match verdict:
            case Nothing():
                tools.metrics.count("stoker_executor_duplicates_total", pool=self.name)
                self._settler.already(work)
            case Ending():
                self._settler.settle(work, verdict, tools.now_ms())
            case Go():
                await self._let_wait(work, verdict.begun_before)

    def _gone(self, work: Work) -> bool:
        """Whether its partitions have gone elsewhere while Redis was asked; then it is dropped."""
        if any(self._tracker.held(place) for place in work.order.places):
            return False
        work.stage = "dropped"
        self._close_if_done(work.order)
        return True

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

    def _charge(self, work: Work) -> bool:
        command = work.command
        if command.action == "invalidate":
            return True  # taking a bad answer out costs nothing and must not wait for a budget
        computed = _computed(command)
        units = 1 if computed is None else max(computed.tokens, command.cost.tokens)
        if computed is not None and isinstance(command.target, Response):
            units += self._tools.answer_tokens
        if not self._tools.quota.take(command.scope, units, self._tools.now_ms()):
            return False
        work.charged_tokens = units
        return True

    def used(self, work: Work, ending: Ending) -> None:
        """Gives back to the scope what a work was charged and did not spend."""
        spent = int(ending.status == "applied") if _computed(work.command) is None else ending.tokens_warmed
        if ending.reason is OutcomeReason.UNVERIFIED or ending.status == "failed":
            spent = work.charged_tokens
        self._tools.quota.give_back(work.command.scope, work.charged_tokens - spent)
        work.charged_tokens = 0

    async def _let_wait(self, work: Work, begun_before: bool) -> None:
        if work.command.supersedes is not None:
            self.stop([work.command.supersedes], "cancelled")
            self._tools.cancelled.put(work.command.supersedes, None)
        await self._keep_content(work.command)
        if self._gone(work):
            return
        work.begun = begun_before
        if begun_before and work.replica not in self._replicas():
            self._absent(work.replica)
        overtaken = None if begun_before else self._overtaken(work)
        if overtaken is not None:
            self._end(work, overtaken)
            return
        turned_away = self._line.put(work)
        if turned_away is not None:
            self._end(turned_away, Ending("rejected", OutcomeReason.QUEUE_FULL))

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
        stopped = self.stop(command.target.command_ids, "cancelled")
        log.info("cancel", extra={"fields": {"command_id": command.command_id, "stopped": stopped}})
        return Ending("applied", OutcomeReason.DONE)

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
            self._end(work, departed(taken_over=False))
        return len(removed)

    def brake(self, replica: str) -> int:
        """Turns away what a replica's breaker refuses now, and closes what of it runs there; returns how many works.
        What somebody began before waits on: it may be in the engine."""
        works = [work for work in self.orders.works() if work.replica == replica and not work.begun]
        refused = [work for work in works if self._tools.braking.refuses(work.command, replica)]
        return sum(self._stop(work, "braked") for work in refused)

    def _stop(self, work: Work, cause: StopCause) -> bool:
        if work.stage == "running":
            work.stop_with(cause)
            return True
        if work.stage != "waiting" or not self._line.remove(work):
            return False
        if cause == "frozen":
            reasons = "; ".join(self._tools.book.frozen(work.command.scope))
            self._end(work, Ending("rejected", OutcomeReason.FROZEN, error=reasons))
        elif cause == "braked":
            self._end(work, braked(self._tools.braking.refuses(work.command, work.replica)))
        else:
            self._end(work, Ending("cancelled", OutcomeReason.CANCELLED))
        return True

    def _end(self, work: Work, ending: Ending) -> None:
        """Settles a work that was admitted and never taken."""
        now_ms = self._tools.now_ms()
        self.used(work, ending)
        self._settler.settle(work, ending, now_ms, now_ms - work.arrived_ms)

    def revoked(self) -> None:
        """Partitions have gone elsewhere: what waits of them is dropped, without an outcome. What runs goes on; the new
        owner finds it begun by a holder that lives, and waits for its outcome."""
        for order in self.orders:
            if any(self._tracker.held(place) for place in order.places):
                continue
            for work in order.works:
                if work.stage == "waiting" and self._line.remove(work):
                    work.stage = "dropped"
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

    def _close_if_done(self, order: Order) -> None:
        if all(work.stage in ("dropped", "settled") for work in order.works):
            self.orders.close(order)


def _computed(command: WarmupCommand) -> Prefix | None:
    """The prompt that an engine computes for a command; None where none has a length that quota counts."""
    target = command.target
    if isinstance(target, Response):
        return target.prompt if target.response_ref is None else None
    return target if isinstance(target, Prefix) else None
