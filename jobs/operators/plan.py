"""Operator 6: one `Planner` per pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyflink.datastream import RuntimeContext
from pyflink.datastream.functions import KeyedBroadcastProcessFunction

from analytics.envelopes import key_of
from analytics.planners import planner_of
from analytics.planning import Planner
from jobs.interpreter import share_core
from jobs.live import Live
from jobs.policies import BroadcastPolicies
from jobs.settings import JobSettings
from jobs.streams import policy_state
from jobs.timers import Alarms, event_time_ms


class PlanOperator(KeyedBroadcastProcessFunction):  # type: ignore[misc]  # untyped base
    """Partials, candidates, vectors and control in; commands and insights out.

    Args:
        settings: the JSON of the job's settings.
    """

    def __init__(self, settings: str) -> None:
        self._settings = settings

    def open(self, runtime_context: RuntimeContext) -> None:
        """Opens state; live planners are caches of it."""
        settings = JobSettings.from_json(self._settings)
        share_core(settings, runtime_context)
        config = settings.planning()
        self._policies = BroadcastPolicies(policy_state(), settings.policy_defaults())
        self._alarms = Alarms()
        self._live = Live(runtime_context, settings.warmup.shards, lambda pool, store: planner_of(config, pool, store))

    def process_element(self, value: bytes, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Sequence[bytes]:
        """One envelope for this pool; the fast lane answers at once."""
        pool = key_of(value)
        planner = self._live[pool]
        timers = ctx.timer_service()
        now_ms = timers.current_processing_time()
        out = planner.on_envelope(value, event_time_ms(timers), now_ms, self._policies.book(ctx))
        self._alarms.arm(pool, planner.next_timer_ms, timers)
        self._let_go(pool, planner)
        return out

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Sequence[bytes]:
        """A tick."""
        pool = str(ctx.get_current_key())
        planner = self._live[pool]
        out: Sequence[bytes] = ()
        if Alarms.due(timestamp, planner.next_timer_ms):
            timers = ctx.timer_service()
            out = planner.on_timer(timestamp, timers.current_processing_time(), self._policies.book(ctx))
            self._alarms.arm(pool, planner.next_timer_ms, timers)
        self._let_go(pool, planner)
        return out

    def _let_go(self, pool: str, planner: Planner) -> None:
        if planner.blank:
            self._live.end(pool)

    def process_broadcast_element(self, value: bytes, ctx: KeyedBroadcastProcessFunction.Context) -> Sequence[Any]:
        """One policy."""
        self._policies.apply(value, ctx)
        return ()
