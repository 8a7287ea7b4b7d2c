"""Operator 5: one `ScopeClusters` per scope, whose vectors and totals of queries become groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from analytics.clustered import QueryVector
from analytics.clustering import prepare
from analytics.envelopes import Partial, Tag, open_as, tag_of
from analytics.scope_clusters import ScopeClusters
from analytics.stores import MapStore
from jobs.operators.decision import DecisionOperator
from jobs.settings import JobSettings


class ClusterOperator(DecisionOperator[ScopeClusters]):
    """Vectors and totals in; groups out, for the planner and as insights."""

    def maker(self, settings: JobSettings) -> Callable[[str, MapStore], ScopeClusters]:
        """Loads what the rule needs: a stride that did would take long."""
        config = settings.clusters()
        if config.rule == "spec":
            prepare()
        return lambda _, store: ScopeClusters(config, store)

    def take(self, decision: ScopeClusters, envelope: bytes, timers: Any) -> Sequence[bytes]:
        """One vector, or the totals of one pane and shard."""
        del timers
        if tag_of(envelope) == Tag.VECTOR:
            decision.on_vector(open_as(envelope, QueryVector))
        else:
            decision.on_counts(open_as(envelope, Partial))
        return ()
