"""The job `warmup` in this process: the same decisions over stores in memory, without Kafka, Flink or Redis.

`stoker gain` asks it what the job would have done, and the tour looks into it. Records go in in the order of their
times; event time follows them at the job's own distance and fires every timer that it passes, in order. Wall time is
event time. Without an encoder nothing is embedded, and so nothing is clustered.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from analytics.asked import Asked
from analytics.clustered import QueryVector
from analytics.demand import Demand
from analytics.envelopes import EmbedRequest, Partial, PrefixDelta, Tag, body_of, key_of, open_as, seal, tag_of
from analytics.facts import shard_of
from analytics.ingest import Ingest
from analytics.planners import planner_of
from analytics.planning import Planner
from analytics.policy import PolicyBook
from analytics.pools import for_redis, scope_of_queries
from analytics.prefixes import PrefixTree
from analytics.prompt_usage import Prompted, PromptUsage
from analytics.scope_clusters import ScopeClusters
from analytics.scope_focus import ScopeFocus
from analytics.sessions import Session
from analytics.stores import MapStore, MemoryLogStore, MemoryMapStore
from analytics.turns import Turn
from connectors.encoders.base import Encoder
from jobs.settings import JobSettings

DEMAND, PREFIX, FOCUS, CLUSTER, SESSION, PROMPTS, PLAN = range(7)
"""Operators in the order of the stream: of timers of one time, the first operator's goes first."""
OPERATORS = ("demand", "prefix", "focus", "cluster", "session", "prompts", "plan")
_Place = tuple[int, str]
"""An operator and one of its keys."""
_KINDS: dict[int, Callable[[Any, MapStore], Any]] = {
    PREFIX: PrefixTree,
    FOCUS: ScopeFocus,
    CLUSTER: ScopeClusters,
    SESSION: Session,
    PROMPTS: PromptUsage,
}
_FOR_PLAN = frozenset(
    {
        Tag.PARTIAL,
        Tag.CANDIDATES,
        Tag.FADING,
        Tag.FOCUSED,
        Tag.EMBEDDED,
        Tag.REWARDED,
        Tag.ANSWER,
        Tag.CLUSTERED,
        Tag.PATTERN,
        Tag.FEATURES,
        Tag.PROMPTS,
    }
)


@dataclass
class Topics:
    """What the job wrote, in its order; who has read a list may clear it.

    Attributes:
        commands, insights, dead_letters: the JSON of their records.
    """

    commands: list[bytes] = field(default_factory=list)
    insights: list[bytes] = field(default_factory=list)
    dead_letters: list[bytes] = field(default_factory=list)


class LocalJob:
    """The operators, wired as in `jobs/warmup.py`; the same object takes all keys.

    Args:
        settings: of the job. One demand shard holds everything, whatever they say: shards only divide the work.
        policy: the policies that hold from the start to the end.
        encoder: of queries.
    """

    def __init__(self, settings: JobSettings, policy: PolicyBook, encoder: Encoder | None = None) -> None:
        one_shard = settings.warmup.model_copy(update={"shards": 1})
        self._settings = settings.model_copy(update={"warmup": one_shard})
        self._policy = policy
        self._redis_pool = settings.redis.pool_key
        self._behind_ms = settings.timing.out_of_orderness_ms
        self._ingest = Ingest(self._settings.ingest())
        self._embedder = None if encoder is None else _embedder(self._settings, encoder)
        self._configs: dict[int, Any] = {
            DEMAND: self._settings.demand(),
            PREFIX: self._settings.prefixes(),
            FOCUS: self._settings.focus(),
            CLUSTER: self._settings.clusters(),
            SESSION: self._settings.sessions(),
            PROMPTS: self._settings.prompts(),
            PLAN: self._settings.planning(),
        }
        self._live: dict[_Place, Any] = {}
        self._logs: dict[str, MemoryLogStore] = {}
        self._stores: dict[_Place, MemoryMapStore] = {}
        self._due_ms: dict[_Place, int] = {}
        self._timers: list[tuple[int, _Place]] = []
        self._touched: set[_Place] = set()
        self._watermark_ms = 0
        self.topics = Topics()

    @property
    def accounting(self) -> dict[str, int]:
        """Where the records of llm.requests went, by the names of `schemas.Accounting` and of `Demand.counters`."""
        return dict(self._operator(DEMAND, "0").counters)

    def state_bytes(self) -> dict[str, int]:
        """Keys and values that the stores of each operator hold, by its name."""
        held = dict.fromkeys(OPERATORS, 0)
        held[OPERATORS[DEMAND]] = sum(log.size_bytes for log in self._logs.values())
        for (operator, _), store in self._stores.items():
            held[OPERATORS[operator]] += store.size_bytes
        return held

    def on_record(self, value: bytes, at_ms: int) -> None:
        """One record of any of the job's topics, at its record time. Event time follows the newest."""
        self.advance(at_ms)
        read = self._ingest.on_record(value, at_ms)
        if read.dead is not None:
            self.topics.dead_letters.append(read.dead)
        if read.fact is not None:
            demand: Demand = self._operator(DEMAND, str(shard_of(read.fact)))
            self._route(demand.on_fact(read.fact, self._watermark_ms, self._policy))
        self._route(read.watched)
        for envelope in read.control:
            self._plan(envelope)

    def advance(self, at_ms: int) -> None:
        """Lets event time come to `out_of_orderness_ms` before this time, and fires what is due on the way."""
        until_ms = at_ms - self._behind_ms
        self._arm()
        while self._timers and self._timers[0][0] <= until_ms:
            due_ms, place = heapq.heappop(self._timers)
            if self._due_ms.get(place) == due_ms:  # else it was moved
                self._watermark_ms = max(self._watermark_ms, due_ms)
                self._fire(due_ms, *place)
                self._arm()
        self._watermark_ms = max(self._watermark_ms, until_ms)

    def _arm(self) -> None:
        """Sets the timers of all whose wishes may have changed."""
        for place in self._touched:
            live = self._live.get(place)
            due_ms = None if live is None else live.next_timer_ms
            if due_ms is None:
                self._due_ms.pop(place, None)
            elif self._due_ms.get(place) != due_ms:
                self._due_ms[place] = due_ms
                heapq.heappush(self._timers, (due_ms, place))
        self._touched.clear()

    def _fire(self, at_ms: int, operator: int, key: str) -> None:
        live = self._operator(operator, key)
        del self._due_ms[operator, key]
        if operator == DEMAND:
            self._route(live.on_timer(at_ms, self._policy))
        elif operator == PLAN:
            self._route(live.on_timer(at_ms, at_ms, self._policy))
        else:
            self._route(live.on_timer(at_ms) or ())
        if live.next_timer_ms is None and operator != DEMAND:  # nothing is to come, and its store would bring it back
            del self._live[operator, key]
            if not self._stores[operator, key].records:
                del self._stores[operator, key]

    def _route(self, envelopes: Iterable[bytes]) -> None:
        for envelope in envelopes:
            tag, key = tag_of(envelope), key_of(envelope)
            if tag in _FOR_PLAN:
                self._plan(for_redis(envelope, self._redis_pool) or envelope)
                scope = scope_of_queries(envelope)
                if scope is not None and self._embedder is not None:
                    self._operator(CLUSTER, scope).on_counts(open_as(envelope, Partial))
            elif tag == Tag.DELTA:
                self._operator(PREFIX, key).on_delta(open_as(envelope, PrefixDelta))
            elif tag == Tag.ASKED:
                self._operator(FOCUS, key).on_asked(open_as(envelope, Asked))
            elif tag == Tag.EMBED:
                self._embed(open_as(envelope, EmbedRequest))
            elif tag == Tag.TURN:
                self._route(self._operator(SESSION, key).on_turn(open_as(envelope, Turn)))
            elif tag == Tag.PROMPTED:
                self._operator(PROMPTS, key).on_prompted(open_as(envelope, Prompted), self._watermark_ms)
            elif tag == Tag.INSIGHT:
                self.topics.insights.append(body_of(envelope))
            elif tag == Tag.COMMAND:
                self.topics.commands.append(body_of(envelope))

    def _plan(self, envelope: bytes) -> None:
        planner: Planner = self._operator(PLAN, key_of(envelope))
        self._route(planner.on_envelope(envelope, self._watermark_ms, self._watermark_ms, self._policy))

    def _embed(self, asked: EmbedRequest) -> None:
        if self._embedder is None:
            return
        for embedded, vector in self._embedder.embed([asked], asked.at_ms):
            self._plan(seal(Tag.EMBEDDED, self._redis_pool, embedded))
            told: QueryVector = vector
            self._operator(CLUSTER, told.scope).on_vector(told)

    def _operator(self, operator: int, key: str) -> Any:
        """The live object of an operator's key; one that is not alive comes back from its store."""
        place = operator, key
        self._touched.add(place)
        live = self._live.get(place)
        if live is None:
            live = self._live[place] = self._new(operator, key)
        return live

    def _new(self, operator: int, key: str) -> Any:
        config: Any = self._configs[operator]
        if operator == DEMAND:
            return Demand(config, int(key), self._logs.setdefault(key, MemoryLogStore(config.logs)))
        store = self._stores.setdefault((operator, key), MemoryMapStore())
        return planner_of(config, key, store) if operator == PLAN else _KINDS[operator](config, store)


def _embedder(settings: JobSettings, encoder: Encoder) -> Any:
    """The job's embedder over a Redis in memory."""
    from connectors.redis.fake import MemoryBlobs, MemoryStore, MemoryVectors
    from jobs.embedding import Embedder

    store = MemoryStore(now_ms=lambda: 0)  # no clock: what is stored stays
    return Embedder(settings.embedding(), encoder, MemoryVectors(store), MemoryBlobs(store))
