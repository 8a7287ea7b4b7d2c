"""All operators of the job in one process, over the stand-in of Flink and a logical clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from analytics.bundles import pack_record
from jobs.operators import tags
from jobs.operators.cluster import ClusterOperator
from jobs.operators.demand import DemandOperator
from jobs.operators.embed import EmbedOperator
from jobs.operators.exits import Exits
from jobs.operators.focus import FocusOperator
from jobs.operators.ingest import IngestOperator
from jobs.operators.plan import PlanOperator
from jobs.operators.prefix import PrefixOperator
from jobs.operators.prompts import PromptsOperator
from jobs.operators.route import Route
from jobs.operators.session import SessionOperator
from jobs.settings import JobSettings
from schemas import WarmupCommand, decode
from tests.jobs.flink_stand_in import Backend, Context

WATERMARKS_EVERY_MS = 200

Answer = Callable[[WarmupCommand, int], Iterable[tuple[int, bytes]]]
"""What comes back of a command that was sent at a time: records and when they arrive."""


class Stage:
    """One operator, what survives it, and its timers, which Flink keeps."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self.backend = Backend()
        self.event_timers: set[tuple[int, Any]] = set()
        self.processing_timers: set[tuple[int, Any]] = set()
        self.rebuild()

    def rebuild(self) -> None:
        """A new object in the place of the old one: all that it knows is what lies in state."""
        self.operator = self._make()
        self.operator.open(self.backend)

    def take(self, value: bytes, key: Any, watermark_ms: int, wall_ms: int) -> list[Any]:
        """One element."""
        context = Context(self.backend, key, watermark_ms, wall_ms)
        return self._done(self.operator.process_element(value, context), context)

    def fire(self, timers: set[tuple[int, Any]], until_ms: int, watermark_ms: int, wall_ms: int) -> list[Any]:
        """What one kind of its timers brings, in the order of times and keys; also those that are set meanwhile."""
        out: list[Any] = []
        while timers and (first := min(timers, key=lambda timer: (timer[0], str(timer[1]))))[0] <= until_ms:
            timers.remove(first)
            context = Context(self.backend, first[1], watermark_ms, wall_ms)
            out += self._done(self.operator.on_timer(first[0], context), context)
        return out

    def _done(self, made: Iterable[Any], context: Context) -> list[Any]:
        out = list(made)
        key = context.get_current_key()
        self.event_timers |= {(at, key) for at in context.event_timers}
        self.processing_timers |= {(at, key) for at in context.processing_timers}
        return out


@dataclass
class Chain:
    """The job as `jobs.warmup.build` connects it.

    Attributes:
        answer: stands for the executors.
        disturb: called before every record; may rebuild stages.
        rows: everything for a topic, key and value, in order. Commands apart.
    """

    settings: JobSettings
    answer: Answer
    disturb: Callable[[Chain], None] = lambda _: None
    commands: list[tuple[bytes, bytes]] = field(default_factory=list)
    rows: list[tuple[bytes, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        config, pool = self.settings.to_json(), self.settings.redis.pool_key
        self.ingest = Stage(lambda: IngestOperator(config))
        self.demand = Stage(lambda: DemandOperator(config))
        self.route = Stage(lambda: Route(pool, self.settings.warmup.embed_shards))
        self.prefix = Stage(lambda: PrefixOperator(config))
        self.focus = Stage(lambda: FocusOperator(config))
        self.embed = Stage(lambda: EmbedOperator(config))
        self.cluster = Stage(lambda: ClusterOperator(config))
        self.session = Stage(lambda: SessionOperator(config))
        self.prompts = Stage(lambda: PromptsOperator(config))
        self.plan = Stage(lambda: PlanOperator(config))
        self.exits = Stage(Exits)
        self._timed = (
            *(self.demand, self.prefix, self.focus, self.embed, self.cluster),
            *(self.session, self.prompts, self.plan),
        )
        self.stages = (self.ingest, self.route, *self._timed, self.exits)
        planned = (self.route, self.prefix, self.focus, self.embed, self.cluster, self.session, self.prompts)
        self._next = {self.ingest: self.demand, self.demand: self.route, **dict.fromkeys(planned, self.plan)}
        self._next[self.plan] = self.exits
        self._sides = {
            tags.CONTROL: self.plan,
            tags.DELTAS: self.prefix,
            tags.ASKED: self.focus,
            tags.EMBEDS: self.embed,
            tags.VECTORS: self.cluster,
            tags.COUNTS: self.cluster,
            tags.TURNS: self.session,
            tags.PROMPTED: self.prompts,
        }
        self._wall_ms = self._watermark_ms = self._newest_ms = 0
        self._arrivals: list[tuple[int, int, bytes, int]] = []
        self._arrived = self._answered = 0

    def policy(self, record: bytes) -> None:
        """A record of warmup.policy, before all others."""
        for stage in (self.demand, self.plan):
            stage.operator.process_broadcast_element(record, Context(stage.backend))

    def run(self, records: Sequence[tuple[int, bytes, int]]) -> None:
        """Records with the time of their arrival and their own; then what is still to come of them."""
        self._arrivals = [(arrival, number, record, at) for number, (arrival, record, at) in enumerate(records)]
        heapq.heapify(self._arrivals)
        self._arrived = len(records)
        self._wall_ms = self._arrivals[0][0] // WATERMARKS_EVERY_MS * WATERMARKS_EVERY_MS
        while self._arrivals:
            # What the passing of time brings may be answered before the next record.
            while self._wall_ms // WATERMARKS_EVERY_MS < self._arrivals[0][0] // WATERMARKS_EVERY_MS:
                self._wall_ms = (self._wall_ms // WATERMARKS_EVERY_MS + 1) * WATERMARKS_EVERY_MS
                self._time_passes()
                self._executors_answer()
            self._wall_ms, _, record, at_ms = heapq.heappop(self._arrivals)
            self.disturb(self)
            self._newest_ms = max(self._newest_ms, at_ms)
            self._go_on(self.ingest, self.ingest.take(pack_record(at_ms, record), None, at_ms, self._wall_ms))
            self._executors_answer()

    def _executors_answer(self) -> None:
        for _, value in self.commands[self._answered :]:
            for at_ms, record in self.answer(decode(value, WarmupCommand), self._wall_ms):
                self._arrived += 1
                heapq.heappush(self._arrivals, (at_ms, self._arrived, record, at_ms))
        self._answered = len(self.commands)

    def _time_passes(self) -> None:
        before, wall_ms = self._watermark_ms, self._wall_ms
        for stage in self._timed:
            self._go_on(stage, stage.fire(stage.processing_timers, wall_ms, before, wall_ms))
        now_ms = self._watermark_ms = max(before, self._newest_ms - self.settings.timing.out_of_orderness_ms - 1)
        for stage in self._timed:
            self._go_on(stage, stage.fire(stage.event_timers, now_ms, now_ms, wall_ms))

    def _go_on(self, stage: Stage, outputs: Iterable[Any]) -> None:
        """What an operator has said goes where the job sends it, to the end."""
        for out in outputs:
            if not isinstance(out, tuple):
                if stage is self.exits:
                    self.commands.append((out[0], out[1]))
                elif isinstance(out, bytes):  # to an operator without keys
                    self._give(self._next[stage], out)
                else:
                    self._give(self._next[stage], out[1], out[0])
            elif out[0] in (tags.INSIGHTS, tags.DEAD):
                self.rows.append((out[1][0], out[1][1]))
            else:
                self._give(self._sides[out[0]], out[1][1], out[1][0])

    def _give(self, stage: Stage, value: bytes, key: Any = None) -> None:
        self._go_on(stage, stage.take(value, key, self._watermark_ms, self._wall_ms))
