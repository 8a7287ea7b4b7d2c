"""The job `warmup` in this process: the same decisions over stores in memory, without Kafka, Flink or Redis.

`stoker gain` asks it what the job would have done, and the tour looks into it. Records go in in the order of their
times; event time follows them at the job's own distance and fires every timer that it passes, in order. Wall time is
event time. Queries are not encoded: what would be embedded is taken as embedded at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from analytics.demand import Demand
from analytics.envelopes import Embedded, EmbedRequest, PrefixDelta, Tag, body_of, key_of, open_as, seal, tag_of
from analytics.facts import shard_of
from analytics.ingest import Ingest
from analytics.planning import Planner
from analytics.policy import PolicyBook
from analytics.pools import for_redis
from analytics.prefixes import PrefixTree
from analytics.stores import MemoryLogStore, MemoryMapStore
from jobs.settings import JobSettings

NO_ENCODER = "0" * 32
"""Fingerprint of the encoder that is not there."""


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
    """The operators ingest, demand, prefix and plan, wired as in `jobs/warmup.py`.

    Args:
        settings: of the job. One demand shard holds everything, whatever they say: shards only divide the work.
        policy: the policies that hold from the start to the end.
    """

    def __init__(self, settings: JobSettings, policy: PolicyBook) -> None:
        one_shard = settings.warmup.model_copy(update={"shards": 1})
        self._settings = settings.model_copy(update={"warmup": one_shard})
        self._policy = policy
        self._redis_pool = settings.redis.pool_key
        self._behind_ms = settings.timing.out_of_orderness_ms
        self._ingest = Ingest(self._settings.ingest())
        config = self._settings.demand()
        self._demand = Demand(config, 0, MemoryLogStore(config.logs))
        self._trees: dict[str, PrefixTree] = {}
        self._planners: dict[str, Planner] = {}
        self._watermark_ms = 0
        self.topics = Topics()

    @property
    def accounting(self) -> dict[str, int]:
        """Where the records went, as in `schemas.Accounting`."""
        return dict(self._demand.counters)

    def on_record(self, value: bytes, at_ms: int) -> None:
        """One record of any of the job's topics. Times must not go back."""
        self.advance(at_ms)
        read = self._ingest.on_record(value, at_ms)
        if read.dead is not None:
            self.topics.dead_letters.append(read.dead)
        if read.fact is not None and shard_of(read.fact) == 0:
            self._route(self._demand.on_fact(read.fact, self._watermark_ms, self._policy))
        for envelope in read.control:
            self._plan(envelope)

    def advance(self, at_ms: int) -> None:
        """Lets event time come to `out_of_orderness_ms` before this time, and fires what is due on the way."""
        until_ms = at_ms - self._behind_ms
        while True:
            due = min(self._timers(), default=None)
            if due is None or due[0] > until_ms:
                break
            self._watermark_ms = max(self._watermark_ms, due[0])
            self._fire(*due)
        self._watermark_ms = max(self._watermark_ms, until_ms)

    def _timers(self) -> Iterator[tuple[int, int, str]]:
        """Time, operator and key of all timers. Of one time demand goes first and plan last, as the stream flows."""
        if self._demand.next_timer_ms is not None:
            yield self._demand.next_timer_ms, 0, ""
        for scope, tree in self._trees.items():
            if tree.next_timer_ms is not None:
                yield tree.next_timer_ms, 1, scope
        for pool, planner in self._planners.items():
            if planner.next_timer_ms is not None:
                yield planner.next_timer_ms, 2, pool

    def _fire(self, at_ms: int, operator: int, key: str) -> None:
        if operator == 0:
            self._route(self._demand.on_timer(at_ms, self._policy))
        elif operator == 1:
            self._route(self._trees[key].on_timer(at_ms))
        else:
            self._route(self._planners[key].on_timer(at_ms, at_ms, self._policy))

    def _route(self, envelopes: list[bytes]) -> None:
        for envelope in envelopes:
            tag = tag_of(envelope)
            if tag == Tag.PARTIAL:
                self._plan(for_redis(envelope, self._redis_pool) or envelope)
            elif tag == Tag.CANDIDATES:
                self._plan(envelope)
            elif tag == Tag.DELTA:
                self._tree(key_of(envelope)).on_delta(open_as(envelope, PrefixDelta))
            elif tag == Tag.EMBED:
                self._embed(open_as(envelope, EmbedRequest))
            elif tag == Tag.INSIGHT:
                self.topics.insights.append(body_of(envelope))
            elif tag == Tag.COMMAND:
                self.topics.commands.append(body_of(envelope))

    def _plan(self, envelope: bytes) -> None:
        pool = key_of(envelope)
        planner = self._planners.get(pool)
        if planner is None:
            planner = self._planners[pool] = Planner(self._settings.planning(), pool, MemoryMapStore())
        self._route(planner.on_envelope(envelope, self._watermark_ms, self._watermark_ms, self._policy))

    def _tree(self, scope: str) -> PrefixTree:
        tree = self._trees.get(scope)
        if tree is None:
            tree = self._trees[scope] = PrefixTree(self._settings.prefixes(), MemoryMapStore())
        return tree

    def _embed(self, asked: EmbedRequest) -> None:
        size = len(asked.text.encode())
        told = Embedded(asked.scope, asked.query, NO_ENCODER, 0, size, asked.at_ms, asked.trigger)
        self._plan(seal(Tag.EMBEDDED, self._redis_pool, told))
