"""What queries and their answers have earned, as a planner knows it: the last word of the shards, forgotten in time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from analytics.envelopes import Rewarded
from analytics.facts import MICRO
from analytics.records import Record, Section, pack, path, unpack
from analytics.reward_posterior import PRIOR, QUARTERS, Evidence, Posterior, posterior, prior_of

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
        weighted, unnamed_weighted, named_weighted: the same weighed by their sources, the sums in millionths times
            quarters and the quarters.
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
    weighted: tuple[int, int] = (0, 0)
    unnamed_weighted: tuple[int, int] = (0, 0)
    named_weighted: tuple[tuple[str, int, int], ...] = ()

    @property
    def mean(self) -> float:
        """Mean reward of the query (D6, spec)."""
        return self.total / self.total_count / MICRO if self.total_count else 0.0

    def of_answer(self, response: str) -> tuple[float, int]:
        """Mean reward of one answer and over how many: those that name it, and those that name none."""
        micro, count = next(((m, n) for name, m, n in self.named if name == response), (0, 0))
        micro, count = micro + self.unnamed, count + self.unnamed_count
        return (micro / count / MICRO, count) if count else (0.0, 0)

    @property
    def evidence(self) -> Evidence:
        """What all judgements of the query say together (D6, tuned)."""
        return _evidence(self.weighted)

    def evidence_of(self, response: str) -> Evidence:
        """What is said of one answer: by judgements that name it, and by those that name none."""
        own = next(((sum_, quarters) for name, sum_, quarters in self.named_weighted if name == response), (0, 0))
        return _evidence(own).plus(_evidence(self.unnamed_weighted))


def _evidence(weighted: tuple[int, int]) -> Evidence:
    return Evidence(weighted[0] / MICRO / QUARTERS, weighted[1] / QUARTERS)


_NOTHING: Mapping[str, Earned] = MappingProxyType({})


class RewardBook:
    """Judged queries of every scope. No scope sees another's.

    Args:
        max_judged: beyond it the queries that were judged longest ago are forgotten, a tenth at once.
        alike: the queries that are in one cluster with a query of a scope; None where there are no clusters.
    """

    def __init__(
        self, max_judged: int, store: Section, alike: Callable[[str, str], Collection[str]] | None = None
    ) -> None:
        self._max_judged = max_judged
        self._alike = alike
        self._store = store
        self._scopes: dict[str, dict[str, Earned]] = {}

    def __len__(self) -> int:
        return sum(len(scope) for scope in self._scopes.values())

    def take(self, rewarded: Rewarded) -> Earned:
        """Takes what a shard says; a shard has the whole of each of its queries."""
        before = self.of(rewarded.scope).get(rewarded.query)
        named = before.named if before is not None else ()
        named_weighted = before.named_weighted if before is not None else ()
        if rewarded.response and rewarded.named_count:
            name = rewarded.response
            named = _renewed(named, (name, rewarded.named, rewarded.named_count))
            named_weighted = _renewed(named_weighted, (name, rewarded.named_weighted, rewarded.named_quarters))
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
            (rewarded.total_weighted, rewarded.total_quarters),
            (rewarded.unnamed_weighted, rewarded.unnamed_quarters),
            named_weighted,
        )
        self._scopes.setdefault(rewarded.scope, {})[rewarded.query] = earned
        self._store.put(path(rewarded.scope, rewarded.query), pack(earned))
        return earned

    def of(self, scope: str) -> Mapping[str, Earned]:
        """The judged queries of a scope."""
        return self._scopes.get(scope, _NOTHING)

    def posterior(self, scope: str, query: str, response: str | None = None) -> Posterior:
        """What a query, or one of its answers, is worth by its judgements and by those of its cluster (D6, tuned)."""
        earned = self.of(scope).get(query)
        if earned is None:
            evidence = Evidence()
        else:
            evidence = earned.evidence if response is None else earned.evidence_of(response)
        return posterior(evidence, self.prior(scope, query))

    def prior(self, scope: str, query: str) -> Posterior:
        """What a query and its answers are worth by the judgements of its cluster alone."""
        judged = self.of(scope)
        others = self._alike(scope, query) if self._alike is not None and judged else ()
        known = [judged[other].evidence for other in others if other != query and other in judged]
        return prior_of(known) if known else PRIOR

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


def _renewed(named: tuple[tuple[str, int, int], ...], last: tuple[str, int, int]) -> tuple[tuple[str, int, int], ...]:
    """The answers that are remembered after one more judgement, that one at the end."""
    return (*[each for each in named if each[0] != last[0]][1 - MAX_NAMED :], last)
