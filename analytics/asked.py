"""Who asked for what since a shard's last slide: what the focus rule of a scope is fed with (D2).

A row is cut out of the head of a fact as it stands there: event time, request identity, user and query, 40 bytes. So
the common event costs a slice, and the focus operator reads a pane's rows as columns without a loop.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter

from msgspec import Struct

ROW_BYTES = 40
ROW = slice(4, 4 + ROW_BYTES)
"""A fact's row: of `facts.HEAD`, what follows shard, kind and flags."""

_TIME_BYTES = 8


class AskedRows(Struct, frozen=True, array_like=True):
    """Requests that have these names in common; an empty name is none.

    Attributes:
        rows: `ROW_BYTES` a request, in rising order: event time in ms, identity, user (0 for nobody), 16 bytes of
            query; all big-endian.
    """

    pool: str
    template: str
    adapter: str
    rows: bytes


class Asked(Struct, frozen=True, array_like=True):
    """demand → focus: requests of one scope and pane that one shard counted in one slide; each is told once.

    Attributes:
        at_ms: the slide.
        dropped: requests for which there was no room.
    """

    scope: str
    pane: int
    at_ms: int
    groups: tuple[AskedRows, ...]
    dropped: int = 0


Names = tuple[str, str, str, str]
"""Scope, pool, template, adapter."""


class PendingAsked:
    """Rows since the last slide. What is sent is sorted, so the order of events does not show."""

    def __init__(self) -> None:
        self._rows: dict[Names, list[bytes]] = {}

    def rows(self, names: Names) -> list[bytes]:
        """Where the `ROW` of each request with these names is added; the same list until `forget`."""
        return self._rows.setdefault(names, [])

    def forget(self) -> None:
        """Drops the lists that are empty: nobody holds one any more."""
        self._rows = {names: rows for names, rows in self._rows.items() if rows}

    def drain(self, at_ms: int, pane_ms: int, max_rows: int, wanted: Callable[[str], bool]) -> Iterator[Asked]:
        """One message for each scope and pane, in their order; nothing is pending afterwards.

        Args:
            max_rows: of one scope and pane; those of its latest requests are dropped, and counted.
            wanted: whether a scope looks for crowds.
        """
        told = sorted(names for names, rows in self._rows.items() if rows)
        for scope, own in groupby(told, key=itemgetter(0)):
            panes: dict[int, dict[Names, list[bytes]]] = {}
            for names in own:
                rows = self._rows[names]
                for pane, cut in _by_pane(sorted(rows), pane_ms):
                    panes.setdefault(pane, {})[names] = cut
                rows.clear()
            if wanted(scope):
                for pane, groups in sorted(panes.items()):
                    yield _asked(scope, pane, at_ms, groups, max_rows)


def _by_pane(rows: list[bytes], pane_ms: int) -> Iterator[tuple[int, list[bytes]]]:
    """Rows in rising order, cut at the ends of panes."""
    start = 0
    while start < len(rows):
        pane = int.from_bytes(rows[start][:_TIME_BYTES]) // pane_ms
        end = bisect_left(rows, ((pane + 1) * pane_ms).to_bytes(_TIME_BYTES), start)
        yield pane, rows[start:end]
        start = end


def _asked(scope: str, pane: int, at_ms: int, groups: dict[Names, list[bytes]], max_rows: int) -> Asked:
    dropped = sum(map(len, groups.values())) - max_rows
    if dropped > 0:
        bar = sorted(row for rows in groups.values() for row in rows)[max_rows]
        groups = {names: kept for names, rows in groups.items() if (kept := rows[: bisect_left(rows, bar)])}
    told = tuple(AskedRows(*names[1:], b"".join(rows)) for names, rows in groups.items())
    return Asked(scope, pane, at_ms, told, max(0, dropped))
