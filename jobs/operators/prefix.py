"""Operator 3: one `PrefixTree` per scope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from analytics.envelopes import PrefixDelta, open_as
from analytics.prefixes import PrefixTree
from analytics.stores import MapStore
from jobs.operators.decision import DecisionOperator
from jobs.settings import JobSettings


class PrefixOperator(DecisionOperator[PrefixTree]):
    """Deltas in, candidates out."""

    def maker(self, settings: JobSettings) -> Callable[[str, MapStore], PrefixTree]:
        """One a scope."""
        config = settings.prefixes()
        return lambda _, store: PrefixTree(config, store)

    def later_ms(self, settings: JobSettings) -> int:
        """A slide has ended when it has for all shards."""
        return settings.slide_spread_ms

    def take(self, decision: PrefixTree, envelope: bytes, timers: Any) -> Sequence[bytes]:
        """One delta of one shard."""
        del timers
        decision.on_delta(open_as(envelope, PrefixDelta))
        return ()
