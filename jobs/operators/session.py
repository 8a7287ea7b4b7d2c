"""Operator `session`: one `Session` per scope and session, fed only where patterns are looked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyflink.datastream import KeyedProcessFunction, RuntimeContext

from analytics.envelopes import key_of, open_as
from analytics.sessions import Session
from analytics.turns import Turn
from jobs.interpreter import share_core
from jobs.live import Live
from jobs.settings import JobSettings
from jobs.streams import addressed
from jobs.timers import Alarms


class SessionOperator(KeyedProcessFunction):  # type: ignore[misc]  # untyped base
    """Turns in, patterns out.

    Args:
        settings: the JSON of the job's settings.
    """

    def __init__(self, settings: str) -> None:
        self._settings = settings

    def open(self, runtime_context: RuntimeContext) -> None:
        """Opens state; live sessions are caches of it."""
        settings = JobSettings.from_json(self._settings)
        share_core(settings, runtime_context)
        config = settings.sessions()
        self._alarms = Alarms()
        self._live = Live(runtime_context, settings.warmup.shards, lambda _, store: Session(config, store))

    def process_element(self, value: bytes, ctx: KeyedProcessFunction.Context) -> Sequence[Any]:
        """One prompt."""
        key = key_of(value)
        session = self._live[key]
        out = session.on_turn(open_as(value, Turn))
        self._alarms.arm(key, session.next_timer_ms, ctx.timer_service())
        return [addressed(envelope) for envelope in out]

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Sequence[Any]:
        """The session may be over."""
        key = str(ctx.get_current_key())
        session = self._live[key]
        session.on_timer(timestamp)
        self._alarms.arm(key, session.next_timer_ms, ctx.timer_service())
        if session.next_timer_ms is None:  # sessions end: what is over must not stay in memory or state
            self._live.end(key)
        return ()
