"""Minutes of a scope, merged from the panes and shards that the demand operators publish.

Counts of the heaviest keys are added by key over panes, shards and pools, so what all of them name is exact. What only
totals tell (a shard's keys beyond its heaviest) is taken as never the same key twice: the entropy can then only come
out too high, and `named_share` says how much of the weight was named. A focus has nearly all of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from analytics.entropy import clogc, entropy_bits
from analytics.envelopes import Partial
from analytics.records import Section, path

PANES_PER_MINUTE = 6
MINUTES_KEPT = 5


@dataclass(frozen=True)
class Minute:
    """What a scope asked for in one minute, in one dimension.

    Attributes:
        start_ms: event time of its beginning.
        counts: weight of every named key.
        named_share: part of the weight that has a name, 1 where the entropy is exact.
    """

    start_ms: int
    entropy_bits: float
    weight: float
    named_share: float
    counts: Mapping[str, float]


def merge_minute(start_ms: int, partials: Iterable[Partial]) -> Minute:
    """One minute out of its partials, of which only the greatest revision of each (pool, shard, pane) may be given."""
    counts: dict[str, float] = {}
    weights, rest = [], []
    for partial in partials:
        named = named_clogc = 0.0
        for key in partial.top:
            counts[key.key] = counts.get(key.key, 0.0) + key.count
            named += key.count
            named_clogc += clogc(key.count)
        weights.append(partial.weight)
        if partial.distinct > len(partial.top):
            rest.append(max(0.0, partial.sum_clogc - named_clogc))
        elif named:
            # All keys are named: where sample weights make counts inexact, the counts decide.
            weights[-1] = named
    weight = math.fsum(weights)
    named = math.fsum(counts.values())
    sum_clogc = math.fsum([*map(clogc, sorted(counts.values())), *sorted(rest)])
    share = min(1.0, named / weight) if weight > 0 else 1.0
    return Minute(start_ms, entropy_bits(weight, sum_clogc), weight, share, counts)


class MinuteWindow:
    """The last minutes of every (scope, dimension), from partials that may be revised until they leave.

    Args:
        pane_ms: length of a pane as the demand operators cut it; six are a minute.
    """

    def __init__(self, pane_ms: int, store: Section) -> None:
        self.minute_ms = pane_ms * PANES_PER_MINUTE
        self._store = store
        self._partials: dict[tuple[str, str], dict[int, dict[tuple[str, int, int], Partial]]] = {}

    def __bool__(self) -> bool:
        return bool(self._partials)

    def add(self, partial: Partial) -> Partial | None:
        """Takes a partial unless a newer revision is held; returns the one that it replaces.

        Returns:
            the replaced partial, or an empty one of the same place where it is the first; None when not taken.
        """
        minutes = self._partials.setdefault((partial.scope, partial.dimension), {})
        held = minutes.setdefault(partial.pane_start_ms // self.minute_ms, {})
        place = (partial.pool, partial.shard, partial.pane_start_ms)
        before = held.get(place)
        if before is not None and before.revision >= partial.revision:
            return None
        held[place] = partial
        self._store.put(_key(partial), msgspec.msgpack.encode(partial))
        return before or msgspec.structs.replace(partial, weight=0.0, sum_clogc=0.0, distinct=0, users=0, top=())

    def places(self) -> list[tuple[str, str]]:
        """Every (scope, dimension) that is held, sorted."""
        return sorted(self._partials)

    def history(self, scope: str, dimension: str, minute: int) -> list[Minute]:
        """The minutes up to this one that follow each other without a gap, the oldest first, at most five."""
        minutes = self._partials.get((scope, dimension), {})
        found: list[Minute] = []
        for number in range(minute, minute - MINUTES_KEPT, -1):
            partials = minutes.get(number)
            if not partials:
                break
            merged = merge_minute(number * self.minute_ms, (partials[place] for place in sorted(partials)))
            if merged.weight <= 0:
                break
            found.append(merged)
        found.reverse()
        return found

    def forget(self, before_minute: int) -> None:
        """Drops all minutes before this one."""
        for name, minutes in list(self._partials.items()):
            for number in [number for number in minutes if number < before_minute]:
                for partial in minutes.pop(number).values():
                    self._store.remove(_key(partial))
            if not minutes:
                del self._partials[name]

    def restore(self, blob: bytes) -> None:
        """Takes back one record."""
        partial = msgspec.msgpack.decode(blob, type=Partial)
        minutes = self._partials.setdefault((partial.scope, partial.dimension), {})
        place = (partial.pool, partial.shard, partial.pane_start_ms)
        minutes.setdefault(partial.pane_start_ms // self.minute_ms, {})[place] = partial


def _key(partial: Partial) -> str:
    return path(partial.scope, partial.dimension, partial.pool, str(partial.shard), str(partial.pane_start_ms))
