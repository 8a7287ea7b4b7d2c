"""Hot prefixes of many scopes by worth density, each looked at only when its turn may have come (D15).

What a prefix is worth at most, when no replica holds it, follows from its columns alone and is computed for all at
once. What is remembered of a target can only lower that. So candidates are looked at in the order of their bounds, and
an offer is given out as soon as it is better than every bound that is left: the order is that of a full sort, the work
that of what a tick can take (lazy greedy, Minoux 1978).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from analytics.commands import NEVER_MS, Offer
from analytics.envelopes import Root
from analytics.memory import TargetMemory
from analytics.prefix_look import Columns, Floats, PoolNow, Terms, look_at

Whole = npt.NDArray[np.intp]

_ROUNDING = 1 + 1e-9
"""Bounds come from numpy and offers from math: their last digits may differ."""
_CHUNK = 1_024
"""So many candidates are looked at before the scopes that take nothing more are sorted out."""


@dataclass(slots=True)
class Look:
    """What the look at a scope finds, as far as it goes.

    Attributes:
        ended: roots whose prefixes a change has ended.
        offered: whether any was found to be worth one now.
        lapse_ms: when one that was looked at may come free, or what is known of a replica ends.
    """

    scope: str
    columns: Columns
    terms: Terms
    ended: frozenset[Root] = frozenset()
    offered: bool = False
    lapse_ms: int = NEVER_MS


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
        lengths = [len(look.columns.keys) for look in looks]
        self._starts = list(accumulate(lengths, initial=0))
        self._numbers: Whole = np.repeat(np.arange(len(looks)), lengths)
        self._bounds: Floats = np.empty(0)
        self._worth: Whole = np.empty(0, dtype=np.intp)
        if looks and pool.ready.names:
            self._weigh()

    def __iter__(self) -> Iterator[Offer]:
        qos = np.array([look.terms.qos_rank for look in self.looks], dtype=np.intp)
        for rank in np.unique(qos).tolist():
            mine = self._worth[qos[self._numbers[self._worth]] == rank]
            yield from self._ranked(mine[np.argsort(-self._bounds[mine], kind="stable")])
        self.exhausted = True

    def _weigh(self) -> None:
        """Bounds of all candidates, and which of them are worth it at most."""
        looks, numbers, pool = self.looks, self._numbers, self._pool
        replicas = len(pool.ready.names)
        terms = [look.terms for look in looks]
        mean_life_s = np.array([each.stay_ms for each in terms], dtype=np.float64) / (1000 * replicas)
        copies = np.array([min(each.copies, replicas) for each in terms], dtype=np.float64)
        least_ms = np.array([each.min_saved_ms for each in terms], dtype=np.float64) / _ROUNDING
        tokens = np.concatenate([look.columns.tokens for look in looks])
        absent = np.exp(-np.concatenate([look.columns.rates for look in looks]) * mean_life_s[numbers])
        hits_ms = np.concatenate([look.columns.p_asked for look in looks]) * absent * pool.ms_per_token
        self._bounds = hits_ms / replicas * _ROUNDING
        worth = (hits_ms * tokens * copies[numbers] >= least_ms[numbers] * replicas) & (
            tokens >= pool.ready.block_tokens
        )
        for start, look in zip(self._starts, looks, strict=False):
            if look.ended:
                over = np.array([root in look.ended for root in look.columns.roots], dtype=bool)
                worth[start : start + len(over)] &= ~over
        self._worth = np.flatnonzero(worth)

    def _ranked(self, order: Whole) -> Iterator[Offer]:
        """The offers of one class; `order` holds its candidates by falling bound."""
        found: list[Offer] = []
        while len(order):
            chunk, order = order[:_CHUNK], order[_CHUNK:]
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
            if self.closed and len(order):
                shut = np.array([look.scope in self.closed for look in self.looks])
                order = order[~shut[self._numbers[order]]]
        while found:
            yield from self._open(heapq.heappop(found))

    def _open(self, offer: Offer) -> tuple[Offer, ...]:
        return () if offer.scope in self.closed else (offer,)
