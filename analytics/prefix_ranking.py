"""Hot prefixes of many scopes by worth density, each looked at only when its turn may have come (D15).

What a prefix is worth at most, when no replica holds it, follows from its columns alone and is computed for all at
once. What is remembered of a target can only lower that. So candidates are looked at in the order of their bounds, and
an offer is given out as soon as it is better than every bound that is left: the order is that of a full sort, the work
that of what a tick can take (lazy greedy, Minoux 1978). Nor are bounds sorted further than a tick looks, and what an
earlier look has found live or resident is left out until its time has come.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from analytics.commands import NEVER_MS, Offer
from analytics.envelopes import Root
from analytics.memory import TargetMemory
from analytics.prefix_look import FREE_MS, Columns, Floats, PoolNow, Terms, look_at
from analytics.prefix_renewal import RENEW_AGE

Whole = npt.NDArray[np.intp]

_ROUNDING = 1 + 1e-9
"""Bounds come from numpy and offers from math: their last digits may differ."""
_CHUNK = 1_024
"""So many candidates are looked at before the scopes that take nothing more are sorted out."""
_WIDER = 4
"""How many times as many candidates are sorted next when those sorted so far were not enough."""


@dataclass(slots=True)
class Look:
    """What the look at a scope finds, as far as it goes.

    Attributes:
        ended: of roots that a change concerns, before when their prefixes must have been asked for last to be over.
        offered: whether any was found to be worth one now.
        solvent_ms: when it can pay anything at all.
        lapse_ms: when one that was looked at, now or earlier, may come free, or what is known of a replica ends.
    """

    scope: str
    columns: Columns
    terms: Terms
    ended: Mapping[Root, int] = field(default_factory=dict)
    offered: bool = False
    lapse_ms: int = NEVER_MS
    solvent_ms: int = 0


def suppressed(looks: Sequence[Look], pool: PoolNow, memory: TargetMemory) -> int:
    """How many hot prefixes are live, resident or were commanded too lately; looks where that is not noted."""
    if not looks:
        return 0
    free_ms = np.concatenate([look.columns.free_ms for look in looks])
    _, numbers, starts = _row(looks)
    count = np.count_nonzero(free_ms > pool.at_ms)
    due: Whole = np.flatnonzero((free_ms <= pool.at_ms) & (free_ms != FREE_MS))
    for place, number in zip(due.tolist(), numbers[due].tolist(), strict=True):
        look, at = looks[number], place - starts[number]
        look_at(look.scope, look.columns, at, look.terms, pool, memory)
        count += int(look.columns.free_ms[at] > pool.at_ms)
    return count


def _row(looks: Sequence[Look]) -> tuple[list[int], Whole, list[int]]:
    """All candidates in one row: how many each look has, the number of each one's look, and where looks begin."""
    lengths = [len(look.columns.keys) for look in looks]
    return lengths, np.repeat(np.arange(len(looks)), lengths), list(accumulate(lengths, initial=0))


class Ranking:
    """Offers of a tick, best first; can be gone through once.

    Args:
        looks: scopes that may act, at what is known of the pool at this tick.

    Attributes:
        closed: scopes that take nothing more. Whoever goes through the offers adds to it.
        exhausted: whether everything that is worth it has been looked at.
    """

    def __init__(self, looks: Sequence[Look], pool: PoolNow, memory: TargetMemory) -> None:
        self.looks = looks
        self.closed: set[str] = set()
        self.exhausted = False
        self._pool = pool
        self._memory = memory
        self._lengths, self._numbers, self._starts = _row(looks)
        self._bounds: Floats = np.empty(0)
        self._worth: Whole = np.empty(0, dtype=np.intp)
        if looks and pool.ready.names:
            self._weigh()

    def __iter__(self) -> Iterator[Offer]:
        qos = np.array([look.terms.qos_rank for look in self.looks], dtype=np.intp)
        for rank in np.unique(qos).tolist():
            mine = self._worth[qos[self._numbers[self._worth]] == rank]
            yield from self._ranked(mine)
        self.exhausted = True

    def _weigh(self) -> None:
        """Bounds of all candidates, which of them may be worth one now, and when the others may."""
        looks, numbers, pool = self.looks, self._numbers, self._pool
        replicas = len(pool.ready.names)
        columns, terms = [look.columns for look in looks], [look.terms for look in looks]
        mean_life_s = np.array([each.stay_ms for each in terms], dtype=np.float64) / (1000 * replicas)
        least_ms = np.array([each.min_saved_ms / min(each.copies, replicas) for each in terms]) * (replicas / _ROUNDING)
        tokens = np.concatenate([each.tokens for each in columns])
        absent = np.exp(-np.concatenate([each.rates for each in columns]) * self._each(mean_life_s))
        free_ms = np.concatenate([each.free_ms for each in columns])
        p_asked = np.concatenate([each.p_asked for each in columns])
        if pool.margin_per_s is None:
            hits_ms = p_asked * absent * pool.ms_per_token
            self._bounds = hits_ms * (_ROUNDING / replicas)
            worth = hits_ms * tokens >= self._each(least_ms)
        else:
            stays_ms = self._each(np.array([each.stay_ms for each in terms], dtype=np.float64))
            rates = np.concatenate([each.rates for each in columns])
            last_ms = np.concatenate([each.last_ms for each in columns])
            ages = (pool.at_ms - last_ms) / stays_ms
            self._bounds, worth = _with_renewals(p_asked, absent, tokens, rates, ages, free_ms, pool)
        worth &= tokens >= pool.ready.block_tokens
        later = free_ms > pool.at_ms
        worth &= ~later
        lapses_ms = np.full(len(looks), NEVER_MS, dtype=np.int64)
        np.minimum.at(lapses_ms, numbers[later], free_ms[later])
        for look, lapse_ms in zip(looks, lapses_ms.tolist(), strict=True):
            # What a replica that is alone used long ago goes while time passes.
            look.lapse_ms = pool.at_ms if pool.alone else lapse_ms
        for start, look in zip(self._starts, looks, strict=False):
            if look.ended:
                before_ms = np.array([look.ended.get(root, 0) for root in look.columns.roots], dtype=np.int64)
                over = look.columns.last_ms < before_ms
                worth[start : start + len(over)] &= ~over
        self._worth = np.flatnonzero(worth)

    def _each(self, of_looks: Floats) -> Floats:
        """A number of each look for each of its candidates."""
        return np.repeat(of_looks, self._lengths)

    def _ranked(self, left: Whole) -> Iterator[Offer]:
        """The offers of one class, out of its candidates."""
        found: list[Offer] = []
        for chunk in self._by_bound(left):
            numbers = self._numbers[chunk].tolist()
            for place, number, bound in zip(chunk.tolist(), numbers, self._bounds[chunk].tolist(), strict=True):
                while found and -found[0].minus_density > bound:
                    yield from self._open(heapq.heappop(found))
                look = self.looks[number]
                if look.scope in self.closed:
                    continue
                at = place - self._starts[number]
                offer, lapse_ms = look_at(look.scope, look.columns, at, look.terms, self._pool, self._memory)
                look.lapse_ms = min(look.lapse_ms, lapse_ms)
                if offer is not None:
                    look.offered = True
                    heapq.heappush(found, offer)
        while found:
            yield from self._open(heapq.heappop(found))

    def _by_bound(self, left: Whole) -> Iterator[Whole]:
        """Candidates by falling bound, a chunk at a time, without those of scopes that have been closed meanwhile."""
        count = _CHUNK
        while len(left):
            best, left = self._split(left, count)
            for start in range(0, len(best), _CHUNK):
                yield self._still_open(best[start : start + _CHUNK])
            left, count = self._still_open(left), count * _WIDER

    def _split(self, left: Whole, count: int) -> tuple[Whole, Whole]:
        """So many candidates of the greatest bounds, sorted, and the rest as it comes."""
        rest = left[:0]
        if len(left) > count:
            parted = np.argpartition(-self._bounds[left], count)
            left, rest = left[parted[:count]], left[parted[count:]]
        return left[np.argsort(-self._bounds[left], kind="stable")], rest

    def _still_open(self, candidates: Whole) -> Whole:
        if not self.closed or not len(candidates):
            return candidates
        still = np.array([look.scope not in self.closed for look in self.looks])
        kept: Whole = candidates[still[self._numbers[candidates]]]
        return kept

    def _open(self, offer: Offer) -> tuple[Offer, ...]:
        return () if offer.scope in self.closed else (offer,)


def _with_renewals(
    p_asked: Floats,
    absent: Floats,
    tokens: Floats,
    rates: Floats,
    ages: Floats,
    free_ms: npt.NDArray[np.int64],
    pool: PoolNow,
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Bounds where what is resident may be renewed and what is displaced is paid for, and which are worth a look.

    A replica that is alone holds what it used within its stay; behind several only what is remembered may be renewed.

    Args:
        absent: by natural traffic. ages: since the last request, in stays.
    """
    replicas, margin_per_s = len(pool.ready.names), pool.margin_per_s or 0.0
    known = free_ms != FREE_MS
    with np.errstate(divide="ignore"):
        left = np.maximum(0.0, 1.0 - margin_per_s * replicas / rates)
    if pool.alone:
        absent = np.where(known | (ages >= 1.0), 1.0, 0.0)
        renewed = ages >= RENEW_AGE
    else:
        renewed = known
    hits = np.maximum(absent / replicas, renewed * (tokens / pool.ready.block_tokens))
    horizon_s = pool.horizon_ms / 1000
    asked = np.maximum(p_asked, -np.expm1(-rates / replicas * horizon_s))
    bounds = asked * hits * left * (pool.ms_per_token * _ROUNDING)
    return bounds, bounds > 0
