"""Operator `focus`: one `ScopeFocus` per scope, who asked for what becomes crowds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from analytics.asked import Asked
from analytics.envelopes import open_as
from analytics.scope_focus import ScopeFocus
from analytics.stores import MapStore
from jobs.operators.decision import DecisionOperator
from jobs.settings import JobSettings


class FocusOperator(DecisionOperator[ScopeFocus]):
    """Who asked for what in; crowds out, for the planners and as insights."""

    def maker(self, settings: JobSettings) -> Callable[[str, MapStore], ScopeFocus]:
        """One a scope."""
        config = settings.focus()
        return lambda _, store: ScopeFocus(config, store)

    def later_ms(self, settings: JobSettings) -> int:
        """A slide has ended when it has for all shards."""
        return settings.slide_spread_ms

    def take(self, decision: ScopeFocus, envelope: bytes, timers: Any) -> Sequence[bytes]:
        """What one shard counted in one slide."""
        del timers
        decision.on_asked(open_as(envelope, Asked))
        return ()
