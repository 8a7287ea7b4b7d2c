"""What warm-ups drove out of a replica's cache, as far as its block events and repeated warm-ups tell (D16). Pure.

Every store into a full cache removes something, so a removal alone is no harm. Harm is what shows that the wrong thing
left: it *comes back* soon after it was removed, so somebody had to compute it again; or blocks leave that were *idle*
for a short time only, so what is asked now and then cannot stay. Least recently used blocks leave first, so where
young ones leave no idle block stays longer; some engines tell the time themselves. And where a
warmed prefix is warmed again, what it *lost* meanwhile is seen without any event.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import TypeVar

from analytics.decay import EMPTY, Decay
from analytics.policy_sections import BreakerPolicy

K = TypeVar("K")
V = TypeVar("V")

BLOCKS_BOUND = 65_536
GONE_BOUND = 16_384
WARMED_BOUND = 4_096
LEAST_BLOCKS = 4
"""Fewer that come back, or leave young, are no sign, however small the cache is."""
LEAST_LOOKS = 3.0
"""Warmed prefixes that must be looked at again before their losses count."""
_SHARES = Decay.half_life(30_000)
_MINUTES = Decay.mean_life(60_000)
_SIGNS = Decay.half_life(10_000)
_SPAN_MS = 5_000
"""Blocks that left young are those of this span of time and the one before."""
DEAF_MS = 10_000
"""So long after a cache became unknown its events are no signs: an engine first tells what it remembers, all at once,
and what was stored and removed long ago would seem to come and go now."""


class _Sum:
    """A fading sum."""

    def __init__(self, decay: Decay) -> None:
        self._decay, self._level = decay, EMPTY

    def add(self, at_ms: int, weight: float) -> None:
        if weight > 0:
            self._level = self._decay.added(self._level, weight, at_ms)

    def amount(self, at_ms: int) -> float:
        return self._decay.amount(self._level, at_ms)


class Displacement:
    """One replica's cache. Blocks are the engine's names for them, unique over its ranks."""

    def __init__(self) -> None:
        self._since: OrderedDict[int, int] = OrderedDict()
        self._warmed: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()
        self._stored, self._own = _Sum(_SHARES), _Sum(_SHARES)
        self._displaced, self._own_minute = _Sum(_MINUTES), _Sum(_MINUTES)
        self._hearing = False
        self._deaf_until_ms = 0
        self.begin()

    def begin(self) -> None:
        """What happened before is no sign any more; what is there stays known."""
        self._gone: OrderedDict[int, int] = OrderedDict()
        self._young: dict[int, int] = {}
        self._regretted, self._looked, self._lost = _Sum(_SIGNS), _Sum(_SHARES), _Sum(_SHARES)

    def forget(self, at_ms: int) -> None:
        """The cache was emptied, or it is not known any more what it holds."""
        self._deaf_until_ms = at_ms + DEAF_MS
        self._stored, self._own = _Sum(_SHARES), _Sum(_SHARES)
        self._since.clear()
        self._warmed.clear()
        self.begin()

    def stored(self, at_ms: int, blocks: Sequence[int], policy: BreakerPolicy) -> None:
        """Blocks became findable, by whomever."""
        self._hearing = True
        if at_ms < self._deaf_until_ms:
            return
        self._stored.add(at_ms, len(blocks))
        for block in blocks:
            gone_ms = self._gone.pop(block, None)
            if gone_ms is not None and at_ms - gone_ms <= policy.regret_ms:
                self._regretted.add(at_ms, 1)
            _put(self._since, block, at_ms, BLOCKS_BOUND)

    def removed(self, at_ms: int, blocks: Sequence[int], policy: BreakerPolicy) -> None:
        """Blocks had to leave; for warm-ups, by their part in what was stored."""
        if at_ms < self._deaf_until_ms:
            return
        self._displaced.add(at_ms, len(blocks) * self.own_share(at_ms))
        span = at_ms // _SPAN_MS
        for block in blocks:
            _put(self._gone, block, at_ms, GONE_BOUND)
            since_ms = self._since.pop(block, None)
            if since_ms is not None and at_ms - since_ms < policy.idle_ms:
                self._young[span] = self._young.get(span, 0) + 1
        for old in [each for each in self._young if each < span - 1]:
            del self._young[old]

    def warmed(
        self, at_ms: int, prefix: Hashable, created_tokens: int, found_tokens: int, block_tokens: int, ttl_ms: int
    ) -> None:
        """A warm-up ended: what it created and what it found.

        Args:
            ttl_ms: how long a prefix that was warmed should be found again.
        """
        if at_ms >= self._deaf_until_ms:
            self._own.add(at_ms, created_tokens / block_tokens)
        self._own_minute.add(at_ms, created_tokens / block_tokens)
        before = self._warmed.pop(prefix, None)
        if before is not None and at_ms - before[1] <= ttl_ms and before[0] > 0:
            self._looked.add(at_ms, 1)
            self._lost.add(at_ms, 1 - min(1.0, found_tokens / before[0]))
        _put(self._warmed, prefix, (created_tokens + found_tokens, at_ms), WARMED_BOUND)

    def own_share(self, at_ms: int) -> float:
        """Of all blocks stored of late, what warm-ups stored; without events it is taken as all."""
        own, stored = self._own.amount(at_ms), self._stored.amount(at_ms)
        if not self._hearing:
            return 1.0 if own > 0 else 0.0
        return min(1.0, own / stored) if stored > 0 else 0.0

    def own_displaced(self, at_ms: int) -> float:
        """Blocks that left for warm-ups in about the last minute; without events, those that warm-ups stored."""
        return (self._displaced if self._hearing else self._own_minute).amount(at_ms)

    def harm(self, at_ms: int, blocks_total: int | None, idle_ms: float | None, policy: BreakerPolicy) -> list[str]:
        """`displaced`, `idle` and `lost`, as far as they show and warm-ups may be what caused them.

        Args:
            blocks_total: of the cache; None where it is not told.
            idle_ms: how long blocks were idle that left since the last look, where the engine tells.
        """
        if self.own_share(at_ms) < policy.own_share:
            return []
        found = []
        known = blocks_total if blocks_total is not None else len(self._since)
        if self._regretted.amount(at_ms) >= max(LEAST_BLOCKS, policy.regret_share * known):
            found.append("displaced")
        span = at_ms // _SPAN_MS
        young = sum(count for each, count in self._young.items() if each >= span - 1)
        if young >= LEAST_BLOCKS if idle_ms is None else idle_ms < policy.idle_ms:
            found.append("idle")
        looked = self._looked.amount(at_ms)
        if looked >= LEAST_LOOKS and self._lost.amount(at_ms) > policy.lost_share * looked:
            found.append("lost")
        return found


def _put(entries: OrderedDict[K, V], key: K, value: V, bound: int) -> None:
    entries[key] = value
    entries.move_to_end(key)
    if len(entries) > bound:
        entries.popitem(last=False)
