"""Operator 3: one `PrefixTree` per scope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyflink.datastream import KeyedProcessFunction, RuntimeContext

from analytics.envelopes import PrefixDelta, key_of, open_as
from analytics.prefixes import PrefixTree
from jobs.interpreter import share_core
from jobs.live import Live
from jobs.settings import JobSettings
from jobs.streams import addressed
from jobs.timers import Alarms


class PrefixOperator(KeyedProcessFunction):  # type: ignore[misc]  # untyped base
    """Deltas in, candidates out.

    Args:
        settings: the JSON of the job's settings.
    """

    def __init__(self, settings: str) -> None:
        self._settings = settings

    def open(self, runtime_context: RuntimeContext) -> None:
        """Opens state; live trees are caches of it."""
        settings = JobSettings.from_json(self._settings)
        share_core(settings, runtime_context)
        config = settings.prefixes()
        self._spread_ms = settings.slide_spread_ms
        self._alarms = Alarms()
        self._live = Live(runtime_context, settings.warmup.shards, lambda _, store: PrefixTree(config, store))

    def process_element(self, value: bytes, ctx: KeyedProcessFunction.Context) -> Sequence[Any]:
        """One delta of one shard."""
        scope = key_of(value)
        tree = self._live[scope]
        tree.on_delta(open_as(value, PrefixDelta))
        self._alarms.arm(scope, tree.next_timer_ms, ctx.timer_service(), self._spread_ms)
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Sequence[Any]:
        """A slide has ended: what is hot now."""
        scope = str(ctx.get_current_key())
        tree = self._live[scope]
        at_ms = timestamp - self._spread_ms
        if not Alarms.due(at_ms, tree.next_timer_ms):
            return ()
        out = tree.on_timer(at_ms)
        self._alarms.arm(scope, tree.next_timer_ms, ctx.timer_service(), self._spread_ms)
        if tree.next_timer_ms is None:  # nothing is to come: a scope that went quiet must not stay in memory
            del self._live[scope]
        return [addressed(envelope) for envelope in out]
