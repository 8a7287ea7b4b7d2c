"""How often each adapter was asked for lately, from the panes that demand publishes.

A pane tells how many requests it had, not when: uses are taken as spread evenly over their pane. The last minute is
kept, and the last two uses however old they are, for those decide whether an adapter stays (D12).
"""

from __future__ import annotations

import heapq

from analytics.envelopes import Partial
from analytics.minutes import PANES_PER_MINUTE
from analytics.records import Record, Section, pack, path, unpack

MAX_ADAPTERS = 2_048
"""Adapters of all scopes that are remembered in a pool: producers name them. The longest unused go first."""


class UseRecord(Record, frozen=True, array_like=True):
    """Uses of an adapter as they are kept: start and requests of each pane, oldest first."""

    scope: str
    adapter: str
    panes: tuple[tuple[int, float], ...]


class AdapterUses:
    """Uses of every (scope, adapter) in one pool.

    Args:
        pane_ms: length of a pane as the demand operators cut it.
        keep_ms: an adapter unused for so long is forgotten.
    """

    def __init__(self, pane_ms: int, keep_ms: int, store: Section) -> None:
        self._pane_ms = pane_ms
        self._keep_ms = keep_ms
        self._store = store
        self._panes: dict[tuple[str, str], dict[int, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._panes)

    def names(self) -> list[tuple[str, str]]:
        """Every (scope, adapter) that was used, sorted."""
        return sorted(self._panes)

    def add(self, partial: Partial, before: Partial) -> None:
        """Counts what a revision of dimension `adapter` adds to the one before."""
        counted = {key.key: key.count for key in before.top}
        for key in partial.top:
            arrivals = key.count - counted.get(key.key, 0)
            if arrivals > 0 and key.key:
                panes = self._panes.setdefault((partial.scope, key.key), {})
                panes[partial.pane_start_ms] = panes.get(partial.pane_start_ms, 0.0) + arrivals
                self._shorten(panes)
                self._write(partial.scope, key.key, panes)

    def in_minute(self, scope: str, adapter: str, at_ms: int) -> float:
        """Requests in the panes that began within the minute before a time."""
        panes = self._panes.get((scope, adapter), {})
        return sum(count for start_ms, count in panes.items() if start_ms >= at_ms - self._pane_ms * PANES_PER_MINUTE)

    def in_pane(self, start_ms: int) -> list[tuple[str, str, float]]:
        """Scope, adapter and requests of the pane that begins at a time, sorted; panes of the last minute are known."""
        return [(*name, panes[start_ms]) for name, panes in sorted(self._panes.items()) if start_ms in panes]

    def last_two_ms(self, scope: str, *adapters: str) -> tuple[int, ...]:
        """Event times of the last uses of some adapters taken together, in order, at most two."""
        merged: dict[int, float] = {}
        for adapter in adapters:
            for start_ms, count in self._panes.get((scope, adapter), {}).items():
                merged[start_ms] = merged.get(start_ms, 0.0) + count
        found: list[int] = []
        for start_ms in sorted(merged, reverse=True):
            uses = max(1, round(merged[start_ms]))
            step_ms = self._pane_ms / uses
            found += [round(start_ms + step_ms * (index + 0.5)) for index in range(uses - 1, max(-1, uses - 3), -1)]
            if len(found) >= 2:
                break
        return tuple(reversed(found[:2]))

    def forget(self, at_ms: int) -> None:
        """Drops what was not used for long, and the longest unused beyond the bound."""
        newest = {name: max(panes) for name, panes in self._panes.items()}
        gone = [name for name, start_ms in newest.items() if start_ms + self._keep_ms <= at_ms]
        surplus = len(newest) - len(gone) - MAX_ADAPTERS
        if surplus > 0:
            kept = ((start_ms, name) for name, start_ms in newest.items() if start_ms + self._keep_ms > at_ms)
            gone += [name for _, name in heapq.nsmallest(surplus, kept)]
        for name in gone:
            del self._panes[name]
            self._store.remove(path(*name))

    def restore(self, blob: bytes) -> None:
        """Takes back one adapter's uses."""
        record = unpack(blob, UseRecord)
        self._panes[record.scope, record.adapter] = dict(record.panes)

    def _shorten(self, panes: dict[int, float]) -> None:
        """Leaves the last minute, and the two last panes with a use."""
        starts = sorted(panes)
        for start_ms in starts[:-2]:
            if start_ms < starts[-1] - self._pane_ms * PANES_PER_MINUTE:
                del panes[start_ms]

    def _write(self, scope: str, adapter: str, panes: dict[int, float]) -> None:
        self._store.put(path(scope, adapter), pack(UseRecord(1, scope, adapter, tuple(sorted(panes.items())))))
