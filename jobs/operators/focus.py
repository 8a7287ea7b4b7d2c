"""Operator `focus`: one `ScopeFocus` per scope."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyflink.datastream import KeyedProcessFunction, RuntimeContext

from analytics.asked import Asked
from analytics.envelopes import Tag, body_of, key_of, open_as, tag_of
from analytics.scope_focus import ScopeFocus
from jobs.interpreter import share_core
from jobs.live import Live
from jobs.operators.tags import INSIGHTS
from jobs.settings import JobSettings
from jobs.streams import addressed, keyed
from jobs.timers import Alarms


class FocusOperator(KeyedProcessFunction):  # type: ignore[misc]  # untyped base
    """Who asked for what in; crowds out, for the planners and as insights by the side.

    Args:
        settings: the JSON of the job's settings.
    """

    def __init__(self, settings: str) -> None:
        self._settings = settings

    def open(self, runtime_context: RuntimeContext) -> None:
        """Opens state; live windows are caches of it."""
        settings = JobSettings.from_json(self._settings)
        share_core(settings, runtime_context)
        config = settings.focus()
        self._spread_ms = settings.slide_spread_ms
        self._alarms = Alarms()
        self._live = Live(runtime_context, settings.warmup.shards, lambda _, store: ScopeFocus(config, store))

    def process_element(self, value: bytes, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        """What one shard counted in one slide."""
        scope = key_of(value)
        focus = self._live[scope]
        focus.on_asked(open_as(value, Asked))
        self._alarms.arm(scope, focus.next_timer_ms, ctx.timer_service(), self._spread_ms)
        self._let_go(scope, focus)
        yield from ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        """A slide has ended for all shards."""
        scope = str(ctx.get_current_key())
        focus = self._live[scope]
        at_ms = timestamp - self._spread_ms
        out: list[bytes] = []
        if Alarms.due(at_ms, focus.next_timer_ms):
            out = focus.on_timer(at_ms)
            self._alarms.arm(scope, focus.next_timer_ms, ctx.timer_service(), self._spread_ms)
        self._let_go(scope, focus)
        for envelope in out:
            if tag_of(envelope) == Tag.INSIGHT:
                yield INSIGHTS, keyed(key_of(envelope), body_of(envelope))
            else:
                yield addressed(envelope)

    def _let_go(self, scope: str, focus: ScopeFocus) -> None:
        if focus.blank:
            self._live.end(scope)
