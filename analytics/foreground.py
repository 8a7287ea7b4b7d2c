"""How users fare on a replica: their first tokens and what they find cached, beside how they fare without warm-ups.

The engine counts warm-ups with all other requests, so what is known of them is taken out again: from the first tokens
one observation in the bucket of its own duration, or in the nearest lower one that has any, since a client's time is
never shorter than the engine's; from prompt tokens what it asked and found. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from analytics.policy_sections import BreakerPolicy

RECENT_HALF_LIFE_MS = 10_000
CALM_HALF_LIFE_MS = 120_000
"""Of the baseline, in time without warm-ups: while they run nothing is learned of it, and nothing forgotten."""
LEAST_RECENT = 10.0
LEAST_CALM = 50.0
"""Requests that must be known of each before they are compared."""
QUANTILE = 0.95
BEYOND_CHANCE = 3.0
"""Standard errors by which shares must differ, of hits and of slow first tokens: of ten requests three, not one."""
LENGTHS = 2.7
"""By tokens a share of hits varies so much more than by requests: e^σ² where lengths follow a log-normal law, σ 1."""
NOTICEABLE_MS = 20.0
"""Less than this nobody is slower, however many times the usual it is."""


@dataclass(frozen=True)
class Counters:
    """What an engine has counted since it started, warm-ups included.

    Attributes:
        bounds: ascending upper bounds of times to first token, in ms.
        counts: first tokens at or below each bound.
    """

    bounds: tuple[float, ...] = (math.inf,)
    counts: tuple[float, ...] = (0.0,)
    queried_tokens: float = 0.0
    found_tokens: float = 0.0

    def since(self, before: Counters) -> Counters | None:
        """What came after `before`; None where that is not told, because the engine started anew."""
        if before.bounds != self.bounds or before.queried_tokens > self.queried_tokens:
            return None
        counts = tuple(now - then for now, then in zip(self.counts, before.counts, strict=True))
        if min(counts) < 0:
            return None
        queried = self.queried_tokens - before.queried_tokens
        return Counters(self.bounds, counts, queried, max(0.0, self.found_tokens - before.found_tokens))


@dataclass(frozen=True)
class Own:
    """A warm-up's part of what the engine counted."""

    duration_ms: float
    queried_tokens: float
    found_tokens: float


@dataclass
class _Side:
    """Fading sums over one kind of time."""

    half_life_ms: float
    bounds: tuple[float, ...] = ()
    buckets: list[float] = field(default_factory=list)
    queried: float = 0.0
    found: float = 0.0
    own_computed: float = 0.0

    @property
    def requests(self) -> float:
        return sum(self.buckets)

    @property
    def hit_share(self) -> float | None:
        return min(1.0, self.found / self.queried) if self.queried > 0 else None

    @property
    def own_part(self) -> float:
        """Of all prompt tokens that were computed, those of warm-ups; all where the engine tells none."""
        computed = self.own_computed + max(0.0, self.queried - self.found)
        return self.own_computed / computed if computed > 0 else 1.0

    def add(self, delta: Counters, passed_ms: float) -> None:
        if delta.bounds != self.bounds:
            self.bounds, self.buckets = delta.bounds, [0.0] * len(delta.bounds)
        kept, below = 0.5 ** (max(0.0, passed_ms) / self.half_life_ms), 0.0
        for index, cumulated in enumerate(delta.counts):
            self.buckets[index] = self.buckets[index] * kept + max(0.0, cumulated - below)
            below = cumulated
        self.queried = self.queried * kept + delta.queried_tokens
        self.found = self.found * kept + delta.found_tokens
        self.own_computed *= kept

    def take_out(self, own: Own) -> None:
        self.own_computed += max(0.0, own.queried_tokens - own.found_tokens)
        self.queried = max(0.0, self.queried - own.queried_tokens)
        self.found = max(0.0, self.found - own.found_tokens)
        home = next((index for index, bound in enumerate(self.bounds) if own.duration_ms <= bound), -1)
        left = 1.0
        for index in range(home, -1, -1):
            taken = min(left, self.buckets[index])
            self.buckets[index] -= taken
            left -= taken
            if left <= 0:
                return

    def beyond(self, bound_ms: float) -> float:
        """Share of first tokens that took longer, evenly spread within a bucket."""
        lower, count = 0.0, 0.0
        for bound, held in zip(self.bounds, self.buckets, strict=True):
            if lower >= bound_ms:
                count += held
            elif bound > bound_ms and not math.isinf(bound):
                count += held * (bound - bound_ms) / (bound - lower)
            lower = bound
        return count / self.requests if self.requests > 0 else 0.0

    def quantile(self, share: float) -> float:
        """As Prometheus does it; the infinite bucket answers with its lower bound."""
        rank, lower, below = share * self.requests, 0.0, 0.0
        for bound, count in zip(self.bounds, self.buckets, strict=True):
            if below + count >= rank and count > 0:
                return lower if math.isinf(bound) else lower + (bound - lower) * (rank - below) / count
            lower, below = (lower if math.isinf(bound) else bound), below + count
        return lower


class Foreground:
    """The users of one replica."""

    def __init__(self) -> None:
        self._before: tuple[int, Counters] | None = None
        self._recent = _Side(RECENT_HALF_LIFE_MS)
        self._calm = _Side(CALM_HALF_LIFE_MS)

    def restart(self) -> None:
        """The engine lives anew: what users met before is no measure for it."""
        self.__init__()  # type: ignore[misc]

    def look(self, at_ms: int, counters: Counters, own: Sequence[Own], calm: bool) -> None:
        """Takes over what was counted since the last look.

        Args:
            own: warm-ups that were heard of since then.
            calm: whether none ran, nor shortly before: then this is how users fare without them.
        """
        before, self._before = self._before, (at_ms, counters)
        delta = None if before is None else counters.since(before[1])
        if before is None or delta is None:
            return
        self._recent.add(delta, at_ms - before[0])
        for each in own:
            self._recent.take_out(each)
        if calm:
            self._calm.add(delta, at_ms - before[0])

    def begin(self) -> None:
        """From now on only what comes counts as recent."""
        self._recent = _Side(RECENT_HALF_LIFE_MS)

    def adopt(self) -> None:
        """How users fare of late is the baseline: they fare so without warm-ups."""
        if self._recent.requests >= LEAST_RECENT:
            recent = self._recent
            self._calm = _Side(CALM_HALF_LIFE_MS, recent.bounds, [*recent.buckets], recent.queried, recent.found)

    def harm(self, policy: BreakerPolicy) -> tuple[str, ...]:
        """`slow` and `hits`, as far as users fare worse than without warm-ups and these may be why."""
        return self.worse(policy) if self._recent.own_part >= policy.own_share else ()

    def worse(self, policy: BreakerPolicy) -> tuple[str, ...]:
        """The same, whoever caused it."""
        recent, calm = self._recent, self._calm
        if recent.requests < LEAST_RECENT or calm.requests < LEAST_CALM:
            return ()
        found = []
        usual_ms = calm.quantile(QUANTILE)
        beyond = recent.beyond(max(policy.ttft_factor * usual_ms, usual_ms + NOTICEABLE_MS))
        if beyond > 1 - QUANTILE + BEYOND_CHANCE * math.sqrt(QUANTILE * (1 - QUANTILE) / recent.requests):
            found.append("slow")
        usual, now = calm.hit_share, recent.hit_share
        if usual is not None and now is not None:
            chance = BEYOND_CHANCE * math.sqrt(LENGTHS * usual * (1 - usual) / recent.requests)
            if usual - now > max(policy.hit_points, chance):
                found.append("hits")
        return tuple(found)
