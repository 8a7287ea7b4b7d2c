"""The dynamic score of a query (D6, reference rule): what it earned and how often it is asked, in [0, 1].

The reward half joins with the rewards; until then a queue scores by demand alone and says so.
"""

from __future__ import annotations

import heapq
import math

from analytics.decay import EMPTY, Decay
from analytics.policy import ScorePolicy
from analytics.records import Record, Section, pack, path, unpack


def alpha_of(domain: str | None, policy: ScorePolicy) -> float:
    """Weight of the reward half in a domain."""
    if domain == "e-commerce":
        return policy.alpha_ecommerce
    return policy.alpha_news if domain == "news" else policy.alpha


def compute_dynamic_score(reward: float | None, demand: float, demand_p99: float, alpha: float = 0.7) -> float:
    """α·reward + (1 − α)·demand, with demand divided by the scope's 99th percentile and cut at 1.

    Args:
        reward: in [0, 1]; None while none is known, then demand alone is the score.
        demand: Σ exp(−age / 300 s) over the query's arrivals.
        demand_p99: 99th percentile of the demands of the scope's queries.
        alpha: see `alpha_of`.

    >>> compute_dynamic_score(0.5, 3.0, 6.0)
    0.5
    >>> compute_dynamic_score(None, 9.0, 6.0)
    1.0
    """
    share = min(1.0, demand / demand_p99) if demand_p99 > 0 else 0.0
    return share if reward is None else alpha * reward + (1 - alpha) * share


def percentile_99(values: list[float]) -> float:
    """The smallest value that at least 99 % of the values do not exceed; 0 of nothing."""
    if not values:
        return 0.0
    return heapq.nlargest(len(values) - math.ceil(0.99 * len(values)) + 1, values)[-1]


class DemandRecord(Record, frozen=True, array_like=True):
    """Demand of one query as it is kept."""

    scope: str
    query: str
    level: float


class QueueRecord(Record, frozen=True, array_like=True):
    """What the last sorting of a scope's queue found."""

    scope: str
    sorted_ms: int
    p99_level: float


class DemandQueue:
    """Decayed demand of the queries of every scope; each scope's queue is cut to its best every `sort_ms`."""

    def __init__(self, decay: Decay, store: Section, sortings: Section) -> None:
        self._decay = decay
        self._store = store
        self._sortings = sortings
        self._levels: dict[str, dict[str, float]] = {}
        self._sorted: dict[str, tuple[int, float]] = {}

    def __bool__(self) -> bool:
        return any(self._levels.values())

    def add(self, scope: str, query: str, arrivals: float, at_ms: int) -> None:
        """Counts arrivals of a query."""
        levels = self._levels.setdefault(scope, {})
        level = levels[query] = self._decay.added(levels.get(query, EMPTY), arrivals, at_ms)
        self._store.put(path(scope, query), pack(DemandRecord(1, scope, query, level)))

    def sort(self, at_ms: int, every_ms: int, scope: str, keep: int, drop_below: float) -> None:
        """Sorts a scope's queue again if it is due: finds the 99th percentile and drops what scores too low."""
        sorted_ms, _ = self._sorted.get(scope, (-every_ms, EMPTY))
        levels = self._levels.get(scope)
        if not levels or at_ms < sorted_ms + every_ms:
            return
        p99 = percentile_99(list(levels.values()))
        bar = p99 + math.log(drop_below) if drop_below > 0 else EMPTY
        best = heapq.nsmallest(keep, ((-level, query) for query, level in levels.items() if level >= bar))
        kept = {query for _, query in best}
        for query in [query for query in levels if query not in kept]:
            del levels[query]
            self._store.remove(path(scope, query))
        # A queue that nobody feeds fades: below a hundredth of an arrival it is gone.
        if self._decay.amount(p99, at_ms) < 0.01:
            self._forget(scope)
            return
        self._sorted[scope] = (at_ms, p99)
        self._sortings.put(path(scope), pack(QueueRecord(1, scope, at_ms, p99)))

    def scopes(self) -> list[str]:
        """Scopes with a queue, sorted."""
        return sorted(self._levels)

    def queries(self, scope: str) -> list[str]:
        """The queries of a scope's queue, sorted by name."""
        return sorted(self._levels.get(scope, {}))

    def rate_per_s(self, demand: float) -> float:
        """Rate of a steady query with such a demand."""
        return self._decay.rate_per_s(demand)

    def demand(self, scope: str, query: str, at_ms: int) -> float:
        """Σ exp(−age / 300 s) over the arrivals of a query."""
        level = self._levels.get(scope, {}).get(query, EMPTY)
        return self._decay.amount(level, at_ms)

    def score(self, scope: str, query: str) -> float:
        """The score by demand alone, against the percentile of the last sorting (of now where there was none)."""
        levels = self._levels.get(scope, {})
        level = levels.get(query, EMPTY)
        held = self._sorted.get(scope)
        p99 = held[1] if held else percentile_99(list(levels.values())) if levels else EMPTY
        if level == EMPTY or p99 == EMPTY:
            return 0.0
        return compute_dynamic_score(None, math.exp(min(0.0, level - p99)), 1.0)

    def restore(self, blob: bytes) -> None:
        """Takes back one query's demand."""
        record = unpack(blob, DemandRecord)
        self._levels.setdefault(record.scope, {})[record.query] = record.level

    def restore_sorting(self, blob: bytes) -> None:
        """Takes back one scope's last sorting."""
        record = unpack(blob, QueueRecord)
        self._sorted[record.scope] = (record.sorted_ms, record.p99_level)

    def _forget(self, scope: str) -> None:
        for query in self._levels.pop(scope, {}):
            self._store.remove(path(scope, query))
        self._sorted.pop(scope, None)
        self._sortings.remove(path(scope))
