"""What is known of how adapters were used, also of those that are not resident: the common ground of all rules (D12).

Hotness is a count that halves every 2.5 median reuse gaps (algorithms.md §3); the median is learned from the gaps
themselves, in bins a quarter of an octave wide, so that it is exact to 9 %.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Container
from itertools import accumulate

from analytics.adapter_classes import AdapterClass
from analytics.records import Record, Section, pack, path, unpack

HALF_LIFE_GAPS = 2.5
FIRST_HALF_LIFE_MS = 300_000.0
"""Until a gap was seen."""
MAX_GAP_MS = 7 * 86_400_000
"""A longer pause is a new beginning, not a gap."""
_BINS_PER_OCTAVE = 4
_BINS = 1 + int(math.log2(MAX_GAP_MS) * _BINS_PER_OCTAVE)
_REMEMBERED_GAPS = 4_096
"""At so many gaps all counts are halved: the median follows the traffic."""


class UsedRecord(Record, frozen=True, array_like=True):
    """An adapter's uses as they are kept.

    Attributes:
        uses_ms: event times of the last two, in order.
        heat: decayed count of uses at the last one.
        priority: 0 to 1, as of the last use.
    """

    adapter: str
    adapter_class: AdapterClass
    uses_ms: tuple[int, ...]
    heat: float
    priority: float


class GapRecord(Record, frozen=True, array_like=True):
    """How many reuse gaps had a length."""

    index: int
    count: float


class AdapterHistory:
    """Uses of every adapter of a pool, at most `max_adapters`: the longest unused that nobody holds go first."""

    def __init__(self, store: Section, max_adapters: int = 2_048) -> None:
        self._store = store
        self._max = max_adapters
        self._used: dict[str, UsedRecord] = {}
        self._gaps = [0.0] * _BINS
        self._half_life_ms = FIRST_HALF_LIFE_MS

    def __len__(self) -> int:
        return len(self._used)

    def __contains__(self, adapter: str) -> bool:
        return adapter in self._used

    @property
    def half_life_ms(self) -> float:
        """Of hotness, in event time."""
        return self._half_life_ms

    def add(self, adapter: str, adapter_class: AdapterClass, at_ms: int, priority: float) -> None:
        """Counts one use. A time before the last one counts as well; the order of calls then does not matter."""
        old = self._used.get(adapter)
        if old is None:
            record = UsedRecord(1, adapter, adapter_class, (at_ms,), 1.0, priority)
        else:
            last_ms = old.uses_ms[-1]
            newest = max(last_ms, at_ms)
            heat = old.heat * self._faded(newest - last_ms) + self._faded(newest - at_ms)
            self._add_gap(abs(at_ms - last_ms))
            uses_ms = tuple(sorted((*old.uses_ms, at_ms))[-2:])
            record = UsedRecord(1, adapter, adapter_class, uses_ms, heat, priority)
        self._used[adapter] = record
        self._store.put("u" + path(adapter), pack(record))

    def of(self, adapter: str) -> UsedRecord | None:
        """What is known of an adapter."""
        return self._used.get(adapter)

    def heat(self, adapter: str, at_ms: int) -> float:
        """Decayed count of uses at a time."""
        used = self._used.get(adapter)
        return 0.0 if used is None else used.heat * self._faded(at_ms - used.uses_ms[-1])

    def forget(self, held: Container[str]) -> None:
        """Drops the longest unused beyond the bound, except those that somebody holds."""
        surplus = len(self._used) - self._max
        if surplus > 0:
            free = ((used.uses_ms[-1], name) for name, used in self._used.items() if name not in held)
            for _, name in heapq.nsmallest(surplus, free):
                del self._used[name]
                self._store.remove("u" + path(name))

    def restore(self, key: str, blob: bytes) -> None:
        """Takes back one record."""
        if key[0] == "u":
            used = unpack(blob, UsedRecord)
            self._used[used.adapter] = used
        else:
            gap = unpack(blob, GapRecord)
            self._gaps[gap.index] = gap.count
            self._half_life_ms = self._learned_half_life_ms()

    def _faded(self, passed_ms: int) -> float:
        return math.exp2(-max(0, passed_ms) / self._half_life_ms)

    def _add_gap(self, gap_ms: int) -> None:
        if not 0 < gap_ms <= MAX_GAP_MS:
            return
        changed = int(math.log2(gap_ms) * _BINS_PER_OCTAVE)
        self._gaps[changed] += 1.0
        halved = sum(self._gaps) >= _REMEMBERED_GAPS
        if halved:
            self._gaps = [count / 2 for count in self._gaps]
        self._half_life_ms = self._learned_half_life_ms()
        for index in range(_BINS) if halved else (changed,):
            self._store.put(f"g{index}", pack(GapRecord(1, index, self._gaps[index])))

    def _learned_half_life_ms(self) -> float:
        half = sum(self._gaps) / 2
        if not half:
            return FIRST_HALF_LIFE_MS
        median = next(index for index, seen in enumerate(accumulate(self._gaps)) if seen >= half)
        return HALF_LIFE_GAPS * math.exp2((median + 0.5) / _BINS_PER_OCTAVE)
