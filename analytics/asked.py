"""Who asked for what since a shard's last slide: what the focus rule of a scope is fed with (D2).

A row is cut out of the head of a fact as it stands there: event time, request identity, user and query, 40 bytes. So
the common event costs a slice, and the focus operator reads a pane's rows as columns without a loop. Where crowds on
prefix families are looked for, the hashes of the prompt's leading segments follow: a second slice. Which of them is the
family depends on what all requests of the scope have in common, which no shard knows.
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
LEAD_BYTES = 16
"""Of a segment's hash."""
MAX_LEADS = 8
"""Leading segments that a request may tell of."""

_TIME_BYTES = 8


class AskedRows(Struct, frozen=True, array_like=True):
    """Requests that have these names in common; an empty name is none.

    Attributes:
        rows: `row_bytes(leads)` a request, in rising order: event time in ms, identity, user (0 for nobody), 16 bytes
            of query, all big-endian; and the hashes of so many leading segments, zeros for those that there are not.
        leads: 0 of requests whose segments are not told.
    """

    pool: str
    template: str
    adapter: str
    rows: bytes
    leads: int = 0


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
_Kind = tuple[str, str, str, str, int]
"""The same, and the leads of a row."""


def row_bytes(leads: int) -> int:
    """Length of a row with so many leads."""
    return ROW_BYTES + leads * LEAD_BYTES


class Asking:
    """Where requests with the same names are told.

    Args:
        bare: rows without leads.
        led: rows with `leads` of them.
        begins: where the hashes begin in a fact with these names.

    Attributes:
        cut: where the leads lie in a fact that has all of them, because it has `enough` segments.
    """

    __slots__ = ("_begins", "_leads", "bare", "cut", "enough", "led")

    def __init__(self, bare: list[bytes], led: list[bytes], leads: int, begins: int) -> None:
        self.bare = bare
        self.led = led
        self._leads = leads
        self._begins = begins
        self.cut = slice(begins, begins + leads * LEAD_BYTES)
        self.enough = leads or 1 << 16

    def add(self, fact: bytes, segments: int) -> None:
        """Tells of a request. Where it has enough segments, `led` gets its row and what `cut` cuts out.

        Args:
            segments: of its prompt.
        """
        if not segments or not self._leads:
            self.bare.append(fact[ROW])
        elif segments >= self._leads:
            self.led.append(fact[ROW] + fact[self.cut])
        else:
            told = fact[self._begins : self._begins + segments * LEAD_BYTES]
            self.led.append((fact[ROW] + told).ljust(row_bytes(self._leads), b"\0"))


class PendingAsked:
    """Rows since the last slide. What is sent is sorted, so the order of events does not show.

    Args:
        leads: of how many leading segments each row tells.
    """

    def __init__(self, leads: int = 0) -> None:
        self._leads = leads
        self._rows: dict[_Kind, list[bytes]] = {}

    def asking(self, names: Names, begins: int) -> Asking:
        """Where each request with these names is told; it adds to the same lists until `forget`.

        Args:
            begins: where the hashes begin in a fact with these names.
        """
        bare, led = (self._rows.setdefault((*names, leads), []) for leads in (0, self._leads))
        return Asking(bare, led, self._leads, begins)

    def forget(self) -> None:
        """Drops the lists that are empty: nobody holds one any more."""
        self._rows = {kind: rows for kind, rows in self._rows.items() if rows}

    def drain(self, at_ms: int, pane_ms: int, max_rows: int, wanted: Callable[[str], bool]) -> Iterator[Asked]:
        """One message for each scope and pane, in their order; nothing is pending afterwards.

        Args:
            max_rows: of one scope and pane; those of its latest requests are dropped, and counted.
            wanted: whether a scope looks for crowds.
        """
        told = sorted(kind for kind, rows in self._rows.items() if rows)
        for scope, own in groupby(told, key=itemgetter(0)):
            panes: dict[int, dict[_Kind, list[bytes]]] = {}
            for kind in own:
                rows = self._rows[kind]
                for pane, cut in _by_pane(sorted(rows), pane_ms):
                    panes.setdefault(pane, {})[kind] = cut
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


def _asked(scope: str, pane: int, at_ms: int, groups: dict[_Kind, list[bytes]], max_rows: int) -> Asked:
    dropped = sum(map(len, groups.values())) - max_rows
    if dropped > 0:
        bar = sorted(row for rows in groups.values() for row in rows)[max_rows]
        groups = {kind: kept for kind, rows in groups.items() if (kept := rows[: bisect_left(rows, bar)])}
    told = tuple(AskedRows(*kind[1:4], b"".join(rows), kind[4]) for kind, rows in groups.items())
    return Asked(scope, pane, at_ms, told, max(0, dropped))
