"""Operator `prompts`: one `PromptUsage` per shard, fed only where managed prompts have a hotness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from analytics.envelopes import open_as
from analytics.prompt_usage import Prompted, PromptUsage
from analytics.stores import MapStore
from jobs.operators.decision import DecisionOperator
from jobs.settings import JobSettings
from jobs.timers import event_time_ms


class PromptsOperator(DecisionOperator[PromptUsage]):
    """Uses and adoptions in, counts for the planners out."""

    def maker(self, settings: JobSettings) -> Callable[[str, MapStore], PromptUsage]:
        """One a shard."""
        config = settings.prompts()
        return lambda _, store: PromptUsage(config, store)

    def take(self, decision: PromptUsage, envelope: bytes, timers: Any) -> Sequence[bytes]:
        """One use, or one adopted answer."""
        decision.on_prompted(open_as(envelope, Prompted), event_time_ms(timers))
        return ()
