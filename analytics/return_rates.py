"""How often prefixes of some hotness are asked for within the horizon, by those that were as hot a horizon ago (D11).

Hotness promises what a steady process would bring. Most prefixes are asked for once and never again, so it promises too
much. Every now and then a *cohort* is noted: a few prefixes of each class, by their expected requests in half octaves,
by whether they were asked for once, and by whether they end a prompt, whose last words hardly ever come back. A horizon
later it is known which were asked for. Their share, with a beta prior on what had been promised (beta-binomial), says
how much faster or slower than promised prefixes of the class come back. What was counted fades: rates may change.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from heapq import nsmallest

from analytics.decay import Decay
from analytics.prefix_nodes import Node
from analytics.records import Record, Section, pack, unpack

PER_OCTAVE = 2
LEAST, MOST = -5, 5
"""Octaves of the classes: from a thirty-second of an expected request to thirty-two of them. The ends hold what is
beyond; what promises less than the least is not worth noting, it is far below every bar."""
EACH = 32
"""Prefixes of a class that a cohort holds."""
PRIOR = 16.0
"""So many prefixes of a class count for its promise: that many tell a share to a quarter."""
MEMORY = 512.0
"""When so many were counted of a class all count half from then on."""
CERTAIN = 1 - 1e-9
"""No chance is taken for greater: its rate would be infinite."""
COHORTS = 4
"""Noted in each horizon."""
TURNS = 8
"""Orders of keys in which the few are taken, each from another byte on, so that they are not always the same ones."""

ONCE = 1.5
"""What had less hotness at its last request was asked for once, or before that so long ago that it hardly counts."""

LOG_2 = math.log(2)
_OCTAVES = (MOST - LEAST) * PER_OCTAVE
_CLASSES = 4 * _OCTAVES
_RATES = "r"


class CohortRecord(Record, frozen=True, array_like=True):
    """Prefixes whose fate is open.

    Attributes:
        members: class, its mean promise, and the keys of its prefixes.
    """

    at_ms: int
    members: tuple[tuple[int, float, tuple[bytes, ...]], ...]


class RatesRecord(Record, frozen=True, array_like=True):
    """When a cohort was noted last, and of each class of which some were judged: how many, promised, and asked for."""

    noted_ms: int
    counted: tuple[tuple[int, float, float, float], ...]


@dataclass
class _Counted:
    """What was counted of a class: prefixes, what was promised of them, and those that were asked for."""

    judged: float = 0.0
    promised: float = 0.0
    asked: float = 0.0


class ReturnRates:
    """Rates of one pool, in event time. Most pools are small: only classes that were judged take room.

    Args:
        horizon_ms: how far ahead P(asked) looks, scaled.
        store: of cohorts and of one record of rates.
    """

    def __init__(self, horizon_ms: int, store: Section) -> None:
        self._horizon_ms = horizon_ms
        self._store = store
        self._cohorts: dict[int, CohortRecord] = {}
        self._noted_ms = 0
        self._counted: dict[int, _Counted] = {}
        self._factors: dict[int, float] = {}
        self._least: dict[float, float] = {}

    def one(self, at_ms: int, decay: Decay) -> float:
        """The level that promises one request within the horizon."""
        return decay.level_of(1000 / (decay.rate_per_s(1.0) * self._horizon_ms), at_ms)

    def factor(self, node: Node, at_ms: int, decay: Decay) -> float:
        """By what the rate of a prefix has to be multiplied."""
        above = (node.level - self.one(at_ms, decay)) / LOG_2 - LEAST
        number = min(int(above * PER_OCTAVE), _OCTAVES - 1) if above > 0 else 0
        once = node.level < decay.mark(ONCE, node.last_ms)
        return self._factors.get(number + _OCTAVES * ((not node.children) + 2 * once), 1.0)

    def least_octave(self, expected: float) -> float:
        """From which octave on a class may have prefixes of which so many requests are expected."""
        if not self._factors:
            return _promising(expected)
        least = self._least.get(expected)
        if least is None:
            least = self._least[expected] = min(
                _least(number, expected / self._factors.get(number, 1.0)) for number in range(_CLASSES)
            )
        return least

    def due(self, at_ms: int) -> bool:
        """Whether it is time to note a cohort."""
        return at_ms >= self._noted_ms + self._horizon_ms // COHORTS

    def note(self, at_ms: int, nodes: Iterable[Node], decay: Decay) -> None:
        """Notes a few of each class, others each time; which ones depends on their keys alone."""
        classes: defaultdict[int, list[Node]] = defaultdict(list)
        one = self.one(at_ms, decay)
        bar, per_level = one + LEAST * LOG_2, PER_OCTAVE / LOG_2
        once, per_ms = decay.mark(ONCE, 0), decay.per_ms
        for node in nodes:  # all of a tree: no calls in here
            level = node.level
            if level >= bar:
                number = int((level - bar) * per_level)
                if number >= _OCTAVES:
                    number = _OCTAVES - 1
                if not node.children:
                    number += _OCTAVES
                if level < once + per_ms * node.last_ms:
                    number += 2 * _OCTAVES
                classes[number].append(node)
        turn = at_ms // max(1, self._horizon_ms // COHORTS) % TURNS
        members = []
        for number, found in sorted(classes.items()):
            some = _some(found, turn)
            promise = math.fsum(-math.expm1(-math.exp(node.level - one)) for node in some) / len(some)
            members.append((number, promise, tuple(node.key for node in some)))
        self._noted_ms = at_ms
        if members:
            self._cohorts[at_ms] = CohortRecord(1, at_ms, tuple(members))
            self._store.put(str(at_ms), pack(self._cohorts[at_ms]))
        self._write()

    def judge(self, at_ms: int, last_asked_ms: Callable[[bytes], int]) -> None:
        """Counts what became of the cohorts that were noted a horizon ago.

        Args:
            last_asked_ms: of a prefix by its key; 0 where it is forgotten.
        """
        ripe = [cohort for cohort in self._cohorts.values() if cohort.at_ms + self._horizon_ms <= at_ms]
        for cohort in ripe:
            end_ms = cohort.at_ms + self._horizon_ms
            for number, promise, keys in cohort.members:
                # Of what was asked for since the horizon ended nobody knows whether it was within it as well.
                lasts = [last_ms for last_ms in map(last_asked_ms, keys) if last_ms < end_ms]
                if not lasts:
                    continue
                counted = self._counted.setdefault(number, _Counted())
                counted.judged += len(lasts)
                counted.promised += promise * len(lasts)
                counted.asked += sum(last_ms >= cohort.at_ms for last_ms in lasts)
                if counted.judged > MEMORY:
                    counted.judged, counted.promised, counted.asked = (
                        counted.judged / 2,
                        counted.promised / 2,
                        counted.asked / 2,
                    )
            del self._cohorts[cohort.at_ms]
            self._store.remove(str(cohort.at_ms))
        if ripe:
            self._learn()
            self._write()

    def clear(self) -> None:
        """Leaves nothing behind."""
        for at_ms in self._cohorts:
            self._store.remove(str(at_ms))
        self._cohorts.clear()
        self._store.remove(_RATES)

    def restore(self, key: str, blob: bytes) -> None:
        """Takes back one record."""
        if key != _RATES:
            cohort = unpack(blob, CohortRecord)
            self._cohorts[cohort.at_ms] = cohort
            return
        record = unpack(blob, RatesRecord)
        self._noted_ms = record.noted_ms
        self._counted = {number: _Counted(*counts) for number, *counts in record.counted}
        self._learn()

    def _learn(self) -> None:
        self._least.clear()
        for number, counted in self._counted.items():
            promise = counted.promised / counted.judged
            found = (counted.asked + PRIOR * promise) / (counted.judged + PRIOR)
            self._factors[number] = math.log1p(-min(found, CERTAIN)) / math.log1p(-min(promise, CERTAIN))

    def _write(self) -> None:
        counted = [(number, each.judged, each.promised, each.asked) for number, each in sorted(self._counted.items())]
        self._store.put(_RATES, pack(RatesRecord(1, self._noted_ms, tuple(counted))))


def _least(number: int, expected: float) -> float:
    """From which octave on a class may have prefixes that promise so much; infinite where it has none."""
    octave, wanted = number % _OCTAVES, math.log2(expected)
    low = LEAST + octave / PER_OCTAVE if octave else -math.inf
    if wanted < LEAST + (octave + 1) / PER_OCTAVE or octave == _OCTAVES - 1:
        return max(low, wanted)
    return math.inf


@lru_cache(maxsize=256)
def _promising(expected: float) -> float:
    """From which octave on prefixes promise so much where nothing was learned: most trees are small and soon let go."""
    return min(_least(number, expected) for number in range(_OCTAVES))


def _some(found: list[Node], turn: int) -> list[Node]:
    """A few, by the bytes of their keys."""
    limit = max(1, 2 * EACH * 256 // max(1, len(found)))
    if limit < 256:  # a look at one byte spares most of the sorting
        found = [node for node in found if node.key[-1 - turn] < limit]
    return nsmallest(EACH, found, key=lambda node: (node.key[-1 - turn :: -1], node.key))
