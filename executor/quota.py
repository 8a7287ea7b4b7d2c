"""Quota: what a scope may spend on a pool, held by the executor too, so that a planner gone wrong cannot overspend.

Several executors share a pool: each may spend the part of the quota that its share of the topic's partitions is. Those
shares add up to one whatever joins or leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from analytics.policy import PolicyBook


@dataclass(frozen=True)
class Rate:
    """What may be spent.

    Attributes:
        per_s: units that come back a second; a unit is a prefill token, or one entry of an embedding cache.
        burst_s: seconds of it that may be saved up.
    """

    per_s: float
    burst_s: float

    @property
    def full(self) -> float:
        """The most that can be saved up."""
        return self.per_s * self.burst_s


def prefill_rate(
    book: PolicyBook, scope: str | None, replicas: int, part: float, time_scale: float, slack: float
) -> Rate:
    """Prefill tokens that one executor may spend for a scope on a pool of engines.

    Args:
        scope: None for all scopes together.
        replicas: engines of the pool.
        part: this executor's share of the pool's commands, 0..1.
        slack: how far above the planner's own budget the executor begins to refuse (≥ 1).
    """
    budget = book.budget()
    per_s = budget.prefill_share * budget.prefill_tokens_per_s * time_scale * replicas
    return Rate(per_s * _share(book, scope) * part * slack, budget.burst_ms / 1000 / time_scale)


def entry_rate(book: PolicyBook, scope: str | None, part: float, time_scale: float, slack: float) -> Rate:
    """Embedding entries that one executor may write for a scope; None for all scopes together."""
    budget = book.budget()
    per_s = budget.embeddings_per_s * time_scale
    return Rate(per_s * _share(book, scope) * part * slack, budget.burst_ms / 1000 / time_scale)


def _share(book: PolicyBook, scope: str | None) -> float:
    if scope is None:
        return 1.0
    share = book.quota(scope).share
    return 1.0 if share < 0 else share


class Quota:
    """Token buckets of one pool: one for each scope, and one for all of them together. A bucket begins full.

    A scope without a share of its own may spend as much as the whole pool; the common bucket keeps many such scopes
    from spending the budget many times over.

    Args:
        rate: what a scope may spend now, and with None all scopes together; asked at every take, so that a new policy
            holds at once.
    """

    def __init__(self, rate: Callable[[str | None], Rate]) -> None:
        self._rate = rate
        self._levels: dict[str | None, tuple[float, int]] = {}

    def take(self, scope: str, units: float, now_ms: int) -> bool:
        """Spends `units` if they are there. More than a full bucket is let through when the bucket is full: a prefix
        longer than the burst would otherwise never be warmed; it leaves a debt."""
        levels = {whose: self._level(whose, now_ms) for whose in (scope, None)}
        full = {whose: self._rate(whose).full for whose in levels}
        enough = all(full[whose] > 0 and level >= min(units, full[whose]) for whose, level in levels.items())
        for whose, level in levels.items():
            self._levels[whose] = (level - units if enough else level, now_ms)
        return enough

    def _level(self, whose: str | None, now_ms: int) -> float:
        rate = self._rate(whose)
        level, since_ms = self._levels.get(whose, (rate.full, now_ms))
        return min(rate.full, level + rate.per_s * max(0, now_ms - since_ms) / 1000)

    def give_back(self, scope: str, units: float) -> None:
        """Returns what was taken and not spent: it was resident already, or never sent."""
        if units <= 0:
            return
        for whose in (scope, None):
            held = self._levels.get(whose)
            if held is not None:
                self._levels[whose] = (min(self._rate(whose).full, held[0] + units), held[1])
