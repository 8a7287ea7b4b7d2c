"""One pool's department: intake, admission, waiting line, workers and settling, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from connectors.kafka.base import Record
from executor.apply import (
    AdapterApplier,
    EmbeddingApplier,
    EngineApplier,
    GeneratedApplier,
    ModelApplier,
    PrefixApplier,
    ResponseApplier,
    Source,
    StoreApplier,
    ValueApplier,
)
from executor.apply.patience import Patience
from executor.charges import Charges
from executor.commits import Place
from executor.entrance import Entrance
from executor.expected import Expected
from executor.intake import Intake
from executor.needs import Needs, unmet
from executor.orders import Order, Work
from executor.outcomes import Ending
from executor.pool import Pool, PoolTools
from executor.quota import Quota, Rate, entry_rate, prefill_rate
from executor.replicas import replicas_for
from executor.settle import Settler
from executor.shared import Shared
from executor.sweeper import Sweeper
from executor.waiting import WaitingLine
from executor.workers import Workers, WorkerTools
from schemas import Adapter, Cancel, Embedding, Model, Prefix, Response, Target, Value, WarmupCommand, topics
from schemas.canonical import outcome_id


def group_of(pool: str) -> str:
    """The job part of a pool's consumer group."""
    return f"executor-{pool.replace(':', '.')}"


class Department:
    """Everything that one pool needs.

    Args:
        name: of the pool.
        remember: told of each command that is this pool's.
    """

    def __init__(self, name: str, shared: Shared, remember: Callable[[WarmupCommand], None]) -> None:
        self.name = name
        self._shared = shared
        tree, ports, settings = shared.tree, shared.ports, shared.tree.executor
        self._is_redis = name == tree.redis.pool_key
        places = settings.redis_concurrency if self._is_redis else settings.concurrency
        self.needs = Needs(lambda command_id, replica: shared.published.status(outcome_id(command_id, replica)))
        line = WaitingLine(settings.queue_bound, ports.now_ms, lambda work: self._may_begin(work, places))
        self.intake = Intake(
            name,
            lambda: ports.consumer(tree.kafka.group(group_of(name))),
            tree.kafka.topic(topics.COMMANDS),
            shared.on_loop(self._deliver),
            shared.on_loop(self._revoked),
            shared.metrics,
        )
        self.settler = Settler(
            shared.publisher,
            ports.ledger,
            shared.published,
            shared.holder,
            self._settled,
            shared.keeper.doubt,
            shared.metrics,
        )
        self._charges = Charges(Quota(self._rate), settings.answer_tokens)
        tools = self._pool_tools()
        self.pool = Pool(tools, line, self.settler, self.intake.tracker)
        self.entrance = Entrance(
            name,
            self._replicas,
            tools,
            self.pool,
            self.settler,
            self.intake.tracker,
            lambda replica: self.workers.wind_up(replica),
            Expected(round(1000 * settings.discovery.await_s)),
            lambda replica: shared.roster.may_come(replica, name),
            remember,
        )
        self.workers = Workers(self._worker_tools(line), places, self._replicas())
        self.sweeper = self._sweeper()
        self._line = line
        shared.braking.on_change(self._braked)

    def _replicas(self) -> tuple[str, ...]:
        """Those that take work; a Redis pool is its own one."""
        return (self.name,) if self._is_redis else self._shared.roster.names(self.name)

    @property
    def awaiting(self) -> bool:
        """Whether it is not known yet which replicas the pool has."""
        return not self._is_redis and self._shared.roster.awaited(self.name)

    def hear(self, command: WarmupCommand) -> None:
        """A command of this pool is under way, here or at another executor."""
        if not isinstance(command.target, Cancel):
            self.needs.hear(command, replicas_for(command, self._replicas()))

    def hear_end(self, command_id: str, replica: str) -> None:
        """A command has an outcome on a replica, ours or another executor's: what waited for it may begin."""
        if self.needs.ended(command_id, replica):
            self._line.look_again(replica)

    def _may_begin(self, work: Work, places: int) -> bool:
        ports, braking = self._shared.ports, self._shared.braking
        return self.needs.admits(work, ports.now_ms()) and braking.admits(work, places)

    def _unmet(self, work: Work) -> Ending | None:
        """How a work ends that may not go on because of what it needs."""
        now_ms = self._shared.ports.now_ms()
        look = self.needs.look(work.command, work.replica, work.arrived_ms, now_ms)
        if look.state == "unheard":
            self._shared.metrics.count("stoker_executor_needs_unheard_total", pool=self.name)
        return unmet(look, work.command, now_ms)

    def welcome(self, replica: str) -> None:
        """A replica takes warm-ups from now on."""
        self.workers.open(replica)

    def part_with(self, replica: str) -> int:
        """A replica takes no more warm-ups; returns how many works were turned away that waited for it. What runs there
        goes on."""
        self.workers.close(replica)
        return self.pool.part_with(replica)

    def _braked(self, replica: str) -> None:
        """Something else holds at a replica than before, or a place there has become free."""
        if self._shared.braking.brake(replica).says("best_effort") == "refuse":
            self.pool.brake(replica)
        self._line.look_again(replica)

    def _pool_tools(self) -> PoolTools:
        shared = self._shared
        return PoolTools(
            book=shared.book,
            ledger=shared.ports.ledger,
            keeper=shared.keeper,
            published=shared.published,
            cancelled=shared.cancelled,
            blobs=shared.ports.blobs,
            publisher=shared.publisher,
            charges=self._charges,
            now_ms=shared.ports.now_ms,
            shadow=shared.tree.executor.shadow,
            braking=shared.braking,
            metrics=shared.metrics,
        )

    def _worker_tools(self, line: WaitingLine) -> WorkerTools:
        shared, settings = self._shared, self._shared.tree.executor
        return WorkerTools(
            line=line,
            ledger=shared.ports.ledger,
            keeper=shared.keeper,
            published=shared.published,
            settler=self.settler,
            holder=shared.holder,
            apply=self._in_redis() if self._is_redis else self._on_engines(),
            patience=Patience(settings.attempts, settings.backoff_ms, settings.request_timeout_ms),
            now_ms=shared.ports.now_ms,
            takes=lambda replica: replica == self.name if self._is_redis else shared.roster.takes(replica),
            frozen=shared.book.frozen,
            cancelled=shared.cancelled.__contains__,
            unmet=self._unmet,
            used=self._charges.give_back,
            unused=self._charges.give_all_back,
            began=shared.braking.began,
            ended=shared.braking.ended,
            metrics=shared.metrics,
        )

    def _on_engines(self) -> Callable[[WarmupCommand, str, float], Awaitable[Ending]]:
        ports, salts = self._shared.ports, self._shared.salts
        engines, max_tokens = self._shared.engines, self._shared.tree.executor.answer_tokens
        proofs = self._shared.proofs
        appliers: Mapping[type[Target], EngineApplier] = {
            Prefix: PrefixApplier(ports.blobs, salts),
            Adapter: AdapterApplier(),
            Model: ModelApplier(),
            Response: GeneratedApplier(ports.blobs, salts, self._responses(), max_tokens),
        }

        async def apply(command: WarmupCommand, replica: str, timeout_s: float) -> Ending:
            refusal = await proofs.refusal(command, replica)
            return refusal or await appliers[type(command.target)].apply(command, engines[replica], timeout_s)

        return apply

    def _in_redis(self) -> Callable[[WarmupCommand, str, float], Awaitable[Ending]]:
        ports, tree, settings = self._shared.ports, self._shared.tree, self._shared.tree.executor
        life_ms = max(1, round(settings.embedding_life_ms / tree.time_scale))
        sources = {each.name: Source.of(each, ports.loaders[each.name]) for each in settings.loaders}
        appliers: Mapping[type[Target], StoreApplier] = {
            Embedding: EmbeddingApplier(ports.blobs, ports.vectors, ports.embeddings, life_ms),
            Response: self._responses(),
            Value: ValueApplier(sources, ports.values, self._shared.metrics),
        }

        async def apply(command: WarmupCommand, _replica: str, _timeout_s: float) -> Ending:
            return await appliers[type(command.target)].apply(command)

        return apply

    def _responses(self) -> ResponseApplier:
        ports, floor = self._shared.ports, self._shared.tree.executor.reward_floor
        return ResponseApplier(ports.blobs, ports.vectors, ports.answers, floor, ports.now_ms)

    def _sweeper(self) -> Sweeper | None:
        """In a Redis pool, unless this executor changes nothing."""
        shared, ports = self._shared, self._shared.ports
        if not self._is_redis or shared.tree.executor.shadow:
            return None
        return Sweeper(self.name, shared.holder, ports.answers, ports.sweep_leases, ports.now_ms, shared.metrics)

    def _rate(self, scope: str | None) -> Rate:
        scale, slack, book = self._shared.tree.time_scale, self._shared.tree.executor.quota_slack, self._shared.book
        if self._is_redis:
            return entry_rate(book, scope, self.intake.part, scale, slack)
        return prefill_rate(book, scope, len(self._replicas()), self.intake.part, scale, slack)

    def _deliver(self, batch: list[tuple[Record, Place]]) -> None:
        self.entrance.deliver(batch)

    def _revoked(self, _partitions: object) -> None:
        self.pool.revoked()

    def _settled(self, order: Order) -> None:
        for work in order.works:
            self.hear_end(order.command.command_id, work.replica)
        self.pool.settled(order)

    async def finish(self, timeout_s: float) -> None:
        """Lets what runs come to its end, and what ended come out, each within `timeout_s`."""
        await self.workers.finish(timeout_s)
        try:
            async with asyncio.timeout(max(1.0, timeout_s)):
                await self.settler.drained()
        except TimeoutError:
            # The broker or Redis is away: what is not out comes again to whoever reads the offsets.
            return
