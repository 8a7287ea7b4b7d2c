"""What queries and their answers have earned, as a planner knows it: the last word of the shards, forgotten in time."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from types import MappingProxyType

from analytics.envelopes import Rewarded
from analytics.facts import MICRO
from analytics.records import Record, Section, pack, path, unpack

MAX_NAMED = 8
"""Answers of one query whose own rewards are remembered; those that were judged last."""


class Earned(Record, frozen=True, array_like=True):
    """What a query earned.

    Attributes:
        domain: of its requests; empty where none told one.
        at_ms: event time of the newest judgement.
        total, total_count: rewards in millionths, and how many.
        unnamed, unnamed_count: of those that name no answer.
        named: hash, sum and count of each answer, the one that was judged last at the end.
    """

    scope: str
    query: str
    domain: str
    at_ms: int
    total: int
    total_count: int
    unnamed: int
    unnamed_count: int
    named: tuple[tuple[str, int, int], ...]

    @property
    def mean(self) -> float:
        """Mean reward of the query (D6, spec)."""
        return self.total / self.total_count / MICRO if self.total_count else 0.0

    def of_answer(self, response: str) -> tuple[float, int]:
        """Mean reward of one answer and over how many: those that name it, and those that name none."""
        micro, count = next(((m, n) for name, m, n in self.named if name == response), (0, 0))
        micro, count = micro + self.unnamed, count + self.unnamed_count
        return (micro / count / MICRO, count) if count else (0.0, 0)


_NOTHING: Mapping[str, Earned] = MappingProxyType({})


class RewardBook:
    """Judged queries of every scope. No scope sees another's.

    Args:
        max_judged: beyond it the queries that were judged longest ago are forgotten, a tenth at once.
    """

    def __init__(self, max_judged: int, store: Section) -> None:
        self._max_judged = max_judged
        self._store = store
        self._scopes: dict[str, dict[str, Earned]] = {}

    def __len__(self) -> int:
        return sum(len(scope) for scope in self._scopes.values())

    def take(self, rewarded: Rewarded) -> Earned:
        """Takes what a shard says; a shard has the whole of each of its queries."""
        before = self.of(rewarded.scope).get(rewarded.query)
        named = before.named if before is not None else ()
        if rewarded.response and rewarded.named_count:
            others = [each for each in named if each[0] != rewarded.response][1 - MAX_NAMED :]
            named = (*others, (rewarded.response, rewarded.named, rewarded.named_count))
        earned = Earned(
            1,
            rewarded.scope,
            rewarded.query,
            rewarded.domain or (before.domain if before is not None else ""),
            rewarded.at_ms,
            rewarded.total,
            rewarded.total_count,
            rewarded.unnamed,
            rewarded.unnamed_count,
            named,
        )
        self._scopes.setdefault(rewarded.scope, {})[rewarded.query] = earned
        self._store.put(path(rewarded.scope, rewarded.query), pack(earned))
        return earned

    def of(self, scope: str) -> Mapping[str, Earned]:
        """The judged queries of a scope."""
        return self._scopes.get(scope, _NOTHING)

    def expire(self, at_ms: int, life_ms: int) -> None:
        """Forgets what was judged too long ago, and what is beyond the bound."""
        surplus = len(self) - self._max_judged
        drop = surplus + self._max_judged // 10 if surplus > 0 else 0
        by_age = ((e.at_ms, scope, query) for scope, held in self._scopes.items() for query, e in held.items())
        old = heapq.nsmallest(drop, by_age) if drop else [each for each in by_age if each[0] + life_ms <= at_ms]
        for _, scope, query in old:
            del self._scopes[scope][query]
            if not self._scopes[scope]:
                del self._scopes[scope]
            self._store.remove(path(scope, query))

    def restore(self, blob: bytes) -> None:
        """Takes back one judged query."""
        earned = unpack(blob, Earned)
        self._scopes.setdefault(earned.scope, {})[earned.query] = earned
