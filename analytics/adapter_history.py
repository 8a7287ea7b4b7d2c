"""What is known of how adapters were used, also of those that are not resident: the common ground of all rules (D12).

Hotness is a count that halves every 2.5 median reuse gaps (algorithms.md §3); the median is learned from the gaps
themselves (`reuse_gaps`), each bucket a record of its own, since a use changes one.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Container

from analytics.adapter_classes import AdapterClass
from analytics.records import Record, Section, pack, path, unpack
from analytics.reuse_gaps import ReuseGaps

HALF_LIFE_GAPS = 2.5
FIRST_HALF_LIFE_MS = 300_000.0
"""Until more than one gap was seen."""
PRIOR_GAPS = 1.0
MOST_GAPS = 4_096.0


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
    """How many reuse gaps are in a bucket."""

    bucket: int
    count: float


class AdapterHistory:
    """Uses of every adapter of a pool, at most `max_adapters`: the longest unused that nobody holds go first."""

    def __init__(self, store: Section, max_adapters: int = 2_048) -> None:
        self._store = store
        self._max = max_adapters
        self._used: dict[str, UsedRecord] = {}
        self._gaps = ReuseGaps(FIRST_HALF_LIFE_MS / HALF_LIFE_GAPS, PRIOR_GAPS, MOST_GAPS)
        self._half_life_ms = HALF_LIFE_GAPS * self._gaps.median_ms()

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
            self._gaps.set_count(gap.bucket, gap.count)
            self._half_life_ms = HALF_LIFE_GAPS * self._gaps.median_ms()

    def _faded(self, passed_ms: int) -> float:
        return math.exp2(-max(0, passed_ms) / self._half_life_ms)

    def _add_gap(self, gap_ms: int) -> None:
        changed = self._gaps.add(gap_ms)
        self._half_life_ms = HALF_LIFE_GAPS * self._gaps.median_ms()
        for bucket in changed:
            self._store.put(f"g{bucket}", pack(GapRecord(1, bucket, self._gaps.count(bucket))))
