"""The embedding half of a Redis pool's plan: which embedded queries to put into the embedding cache, now."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping

from analytics.commands import Allowance, Draft, Offer
from analytics.demand_queue import DemandQueue
from analytics.envelopes import Embedded
from analytics.memory import TargetMemory
from analytics.plan_config import PlanConfig
from analytics.policy import PlanPolicy, PolicyBook
from analytics.records import Record, Section, pack, path, unpack
from analytics.second_sight import FIRST_SIGHT
from analytics.shares import Shares
from analytics.worth import Worth
from schemas import Embedding
from schemas.canonical import bucket, embedding_key
from schemas.warmup_command import QOS_RANK, Qos

TRIGGER_HOT = "hot_query"
TRIGGER_FOCUS = "focus"
TRIGGER_SECOND_SIGHT = "second_sight"
VECTOR_ITEM_BYTES = 4


class KnownRecord(Record, frozen=True, array_like=True):
    """A query whose vector and text lie in Redis.

    Attributes:
        owed_until_ms: until when a fast command that could not go out is still wanted; 0 where none is.
    """

    scope: str
    query: str
    fingerprint: str
    bytes: int
    at_ms: int
    trigger: str
    owed_until_ms: int


class EmbeddingPlanner:
    """Embedded queries of every scope, and which of them are worth an entry of the cache."""

    def __init__(self, config: PlanConfig, memory: TargetMemory, queue: DemandQueue, store: Section) -> None:
        self._config = config
        self._memory = memory
        self._queue = queue
        self._store = store
        self._known: dict[str, dict[str, KnownRecord]] = {}
        self._owed: dict[tuple[str, str], int] = {}
        self._shares = Shares()
        self._announced: frozenset[str] = frozenset()

    def share_with(self, scopes: frozenset[str]) -> None:
        """Scopes that spend in this pool although none of their queries is embedded: they have announced something."""
        gone, self._announced = self._announced - scopes, scopes
        for scope in scopes:
            self._shares.join(scope)
        for scope in gone:
            self._leave(scope)

    @property
    def known(self) -> int:
        """How many embedded queries are remembered."""
        return sum(len(known) for known in self._known.values())

    @property
    def owed(self) -> int:
        """How many fast commands wait for budget."""
        return len(self._owed)

    def lookup(self, scope: str, query: str) -> KnownRecord | None:
        """What is known of an embedded query."""
        return self._known.get(scope, {}).get(query)

    def on_embedded(self, embedded: Embedded) -> None:
        """Remembers an embedded query, with its fast command still owed; a first sight is owed none."""
        held, first = self.lookup(embedded.scope, embedded.query), embedded.trigger == FIRST_SIGHT
        if first and held is not None and held.fingerprint == embedded.fingerprint:
            return
        record = KnownRecord(
            1,
            embedded.scope,
            embedded.query,
            embedded.fingerprint,
            embedded.dimension * VECTOR_ITEM_BYTES + embedded.text_bytes,
            embedded.at_ms,
            embedded.trigger,
            0 if first else embedded.at_ms + self._config.min_life_ms,
        )
        self._put(record)

    def fast(self, scope: str, query: str, at_ms: int, policy: PolicyBook) -> Draft | None:
        """A draft for a command that is owed; None where it may not or need not go out."""
        plan = policy.plan(scope)
        record = self._known.get(scope, {}).get(query)
        if record is None or not record.owed_until_ms or policy.frozen(scope):
            return None
        if record.trigger == TRIGGER_SECOND_SIGHT and not plan.second_sight:
            return None
        offer = self._offer(record, at_ms, plan, 1.0)
        return None if offer is None else self._draft(offer, record, at_ms, record.trigger, 1.0, policy)

    def settled(self, scope: str, query: str) -> None:
        """The owed command went out, or is not wanted any more."""
        record = self._known.get(scope, {}).get(query)
        if record is not None and record.owed_until_ms:
            self._put(
                KnownRecord(
                    1,
                    scope,
                    query,
                    record.fingerprint,
                    record.bytes,
                    record.at_ms,
                    record.trigger,
                    0,
                )
            )

    def owing(self, at_ms: int) -> list[tuple[str, str]]:
        """Queries whose fast command still waits, the longest wait first; what waited too long is settled."""
        for (scope, query), until_ms in list(self._owed.items()):
            if until_ms <= at_ms:
                self.settled(scope, query)
        return [name for _, name in sorted((until_ms, name) for name, until_ms in self._owed.items())]

    def review(
        self, at_ms: int, policy: PolicyBook, focus: Mapping[str, frozenset[str]]
    ) -> tuple[list[Offer], int, int]:
        """Looks at every scope's queue of hot queries.

        Args:
            focus: queries of each scope's present focus.

        Returns:
            offers, how many hot embedded queries were looked at, and how many of them are live or resident.
        """
        offers: list[Offer] = []
        looked = suppressed = 0
        for scope in self._queue.unsorted(at_ms):
            score = policy.score(scope)
            self._queue.sort(at_ms, self._config.scaled(score.sort_ms), scope, score.queue, score.drop_below, score)
        for scope, known in sorted(self._known.items()):
            plan, score = policy.plan(scope), policy.score(scope)
            if not plan.embeddings or policy.frozen(scope):
                continue
            crowd = focus.get(scope, frozenset())
            boost = policy.focus(scope).boost
            for query in self._queue.queries(scope):
                record = known.get(query)
                value = self._queue.hope(scope, query, score) if record is not None else 0.0
                if record is None or record.trigger == FIRST_SIGHT or value < score.drop_below:
                    continue
                looked += 1
                offer = self._offer(record, at_ms, plan, value * boost if query in crowd else value)
                if offer is None:
                    suppressed += 1
                else:
                    offers.append(offer)
        return offers, looked, suppressed

    def draft(self, offer: Offer, at_ms: int, policy: PolicyBook, focus: Mapping[str, frozenset[str]]) -> Draft:
        """An offer of `review` in full."""
        scope, query = offer.scope, offer.key.rpartition(":")[2]
        record = self._known[scope][query]
        if query in focus.get(scope, frozenset()):
            return self._draft(offer, record, at_ms, TRIGGER_FOCUS, policy.focus(scope).boost, policy)
        return self._draft(offer, record, at_ms, TRIGGER_HOT, 1.0, policy)

    def offer(self, scope: str, query: str, at_ms: int, policy: PolicyBook, density: float) -> Offer | None:
        """An offer for one query; None where it is not embedded, live, resident, or was commanded too lately.

        Args:
            density: expected use, by which it is ranked.
        """
        record = self._known.get(scope, {}).get(query)
        return None if record is None else self._offer(record, at_ms, policy.plan(scope), density)

    def draft_for(self, offer: Offer, at_ms: int, trigger: str, policy: PolicyBook) -> Draft:
        """An offer of `offer` in full."""
        record = self._known[offer.scope][offer.key.rpartition(":")[2]]
        return self._draft(offer, record, at_ms, trigger, 1.0, policy)

    def allowance(self, scope: str, policy: PolicyBook) -> Allowance:
        """What a scope may write: its share of the pool's commands a second."""
        budget, share = policy.budget(), self._shares.of(scope, policy)
        rate = budget.embeddings_per_s * share
        burst = max(1.0, rate * self._config.scaled(budget.burst_ms) / 1000) if rate > 0 else 0.0
        return Allowance(rate, burst, share)

    def shrink(self) -> None:
        """Forgets the queries that were embedded longest ago, a tenth at once, when there are too many."""
        surplus = self.known - self._config.max_known
        if surplus <= 0:
            return
        everything = ((r.at_ms, r.scope, r.query) for known in self._known.values() for r in known.values())
        for _, scope, query in heapq.nsmallest(surplus + self._config.max_known // 10, everything):
            del self._known[scope][query]
            self._owed.pop((scope, query), None)
            self._store.remove(path(scope, query))
            if not self._known[scope]:
                del self._known[scope]
                self._leave(scope)

    def restore(self, blob: bytes) -> None:
        """Takes back one embedded query."""
        self._hold(unpack(blob, KnownRecord))

    def _offer(self, record: KnownRecord, at_ms: int, plan: PlanPolicy, density: float) -> Offer | None:
        config = self._config
        key = embedding_key(record.fingerprint, record.query)
        now, attempt = bucket(at_ms, config.scaled(plan.embedding_repeat_ms)), 1
        target = self._memory.get(record.scope, key)
        if target is not None:
            lasts = target.anywhere_until() > at_ms + config.scaled(plan.lead_ms)
            if target.live(at_ms) or lasts or target.bucket >= now:
                return None
            attempt = target.next_attempt(now, at_ms)
        return Offer(QOS_RANK[plan.qos], -density, record.scope, key, (), attempt)

    def _draft(
        self, offer: Offer, record: KnownRecord, at_ms: int, trigger: str, boost: float, policy: PolicyBook
    ) -> Draft:
        config, plan = self._config, policy.plan(record.scope)
        repeat_ms = config.scaled(plan.embedding_repeat_ms)
        demand = self._queue.demand(record.scope, record.query, at_ms)
        rate_per_s = self._queue.rate_per_s(record.scope, demand)
        worth = Worth(
            p_asked=-math.expm1(-rate_per_s * config.scaled(config.horizon_ms) / 1000),
            p_absent=1.0,
            saved_ms=config.embed_saved_ms / config.time_scale,
            cost=1.0,
        )
        qos: Qos = plan.qos  # type: ignore[assignment]
        return Draft(
            scope=record.scope,
            key=offer.key,
            source=Embedding(fingerprint=record.fingerprint, query_sha256=record.query),
            unit=record.query,
            bucket=bucket(at_ms, repeat_ms),
            attempt=offer.attempt,
            life_ms=config.life_ms(plan.embedding_life_ms),
            repeat_ms=repeat_ms,
            names=(),
            charge=1.0,
            worth=worth,
            trigger=trigger,
            qos=qos,
            bytes=record.bytes,
            evidence={
                "score": self._queue.score(record.scope, record.query, policy.score(record.scope)),
                "boost": boost,
                "demand": demand,
                "rate_per_s": rate_per_s,
                "reward_known": float(self._queue.earned(record.scope, record.query) is not None),
            },
        )

    def _leave(self, scope: str) -> None:
        if scope not in self._known and scope not in self._announced:
            self._shares.leave(scope)

    def _put(self, record: KnownRecord) -> None:
        self._hold(record)
        self._store.put(path(record.scope, record.query), pack(record))

    def _hold(self, record: KnownRecord) -> None:
        if record.scope not in self._known:
            self._known[record.scope] = {}
            self._shares.join(record.scope)
        self._known[record.scope][record.query] = record
        if record.owed_until_ms:
            self._owed[record.scope, record.query] = record.owed_until_ms
        else:
            self._owed.pop((record.scope, record.query), None)
