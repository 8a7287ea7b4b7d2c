"""Operator `prompts`: one `PromptUsage` per shard, fed only where managed prompts have a hotness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyflink.datastream import KeyedProcessFunction, RuntimeContext

from analytics.envelopes import key_of, open_as
from analytics.prompt_usage import Prompted, PromptUsage
from jobs.interpreter import share_core
from jobs.live import Live
from jobs.settings import JobSettings
from jobs.streams import addressed
from jobs.timers import Alarms, event_time_ms


class PromptsOperator(KeyedProcessFunction):  # type: ignore[misc]  # untyped base
    """Uses and adoptions in, counts for the planners out.

    Args:
        settings: the JSON of the job's settings.
    """

    def __init__(self, settings: str) -> None:
        self._settings = settings

    def open(self, runtime_context: RuntimeContext) -> None:
        """Opens state; live shards are caches of it."""
        settings = JobSettings.from_json(self._settings)
        share_core(settings, runtime_context)
        config = settings.prompts()
        self._alarms = Alarms()
        self._live = Live(runtime_context, settings.warmup.shards, lambda _, store: PromptUsage(config, store))

    def process_element(self, value: bytes, ctx: KeyedProcessFunction.Context) -> Sequence[Any]:
        """One use, or one adopted answer."""
        key = key_of(value)
        shard = self._live[key]
        timers = ctx.timer_service()
        shard.on_prompted(open_as(value, Prompted), event_time_ms(timers))
        self._alarms.arm(key, shard.next_timer_ms, timers)
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Sequence[Any]:
        """A slide has ended."""
        key = str(ctx.get_current_key())
        shard = self._live[key]
        if not Alarms.due(timestamp, shard.next_timer_ms):
            return ()
        out = shard.on_timer(timestamp)
        self._alarms.arm(key, shard.next_timer_ms, ctx.timer_service())
        return [addressed(envelope) for envelope in out]
