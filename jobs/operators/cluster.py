"""Operator 5: one `ScopeClusters` per scope."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyflink.datastream import KeyedProcessFunction, RuntimeContext

from analytics.clustered import QueryVector
from analytics.clustering import prepare
from analytics.envelopes import Partial, Tag, body_of, key_of, open_as, tag_of
from analytics.scope_clusters import ScopeClusters
from jobs.interpreter import share_core
from jobs.live import Live
from jobs.operators.tags import INSIGHTS
from jobs.settings import JobSettings
from jobs.streams import addressed, keyed
from jobs.timers import Alarms


class ClusterOperator(KeyedProcessFunction):  # type: ignore[misc]  # untyped base
    """Vectors and totals of queries in; groups out, for the planner and as insights by the side.

    Args:
        settings: the JSON of the job's settings.
    """

    def __init__(self, settings: str) -> None:
        self._settings = settings

    def open(self, runtime_context: RuntimeContext) -> None:
        """Opens state; live clusters are caches of it. Loads what the rule needs: a stride that did would take long."""
        settings = JobSettings.from_json(self._settings)
        share_core(settings, runtime_context)
        config = settings.clusters()
        if config.rule == "spec":
            prepare()
        self._alarms = Alarms()
        self._live = Live(runtime_context, settings.warmup.shards, lambda _, store: ScopeClusters(config, store))

    def process_element(self, value: bytes, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        """One vector, or the totals of one pane and shard."""
        scope = key_of(value)
        clusters = self._live[scope]
        if tag_of(value) == Tag.VECTOR:
            clusters.on_vector(open_as(value, QueryVector))
        else:
            clusters.on_counts(open_as(value, Partial))
        self._alarms.arm(scope, clusters.next_timer_ms, ctx.timer_service())
        self._let_go(scope, clusters)
        yield from ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        """A stride."""
        scope = str(ctx.get_current_key())
        clusters = self._live[scope]
        out: list[bytes] = []
        if Alarms.due(timestamp, clusters.next_timer_ms):
            out = clusters.on_timer(timestamp)
            self._alarms.arm(scope, clusters.next_timer_ms, ctx.timer_service())
        self._let_go(scope, clusters)
        for envelope in out:
            if tag_of(envelope) == Tag.INSIGHT:
                yield INSIGHTS, keyed(key_of(envelope), body_of(envelope))
            else:
                yield addressed(envelope)

    def _let_go(self, scope: str, clusters: ScopeClusters) -> None:
        if clusters.blank:
            self._live.end(scope)
