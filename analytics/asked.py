"""Who asked for what since a shard's last slide: what the focus rule of a scope is fed with (D2).

A row is cut out of the head of a fact as it stands there: event time, request identity, user and query, 40 bytes. So
the common event costs a slice, and the focus operator reads a pane's rows as columns without a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from analytics.facts import unpack_names

ROW_BYTES = 40
_ROW = slice(4, 4 + ROW_BYTES)
"""Of `facts.HEAD`: what follows shard, kind and flags."""


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


class PendingAsked:
    """Rows since the last slide. What is sent is sorted, so the order of events does not show."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, bytes], list[bytes]] = {}

    def add(self, pane: int, names: bytes, fact: bytes) -> None:
        """Takes a request that was counted; `names` are the fact's."""
        rows = self._rows.get((pane, names))
        if rows is None:
            rows = self._rows[pane, names] = []
        rows.append(fact[_ROW])

    def drain(self, at_ms: int, max_rows: int, wanted: Callable[[str], bool]) -> Iterator[Asked]:
        """One message for each scope and pane, in their order; nothing is pending afterwards.

        Args:
            max_rows: of one scope and pane; those of its latest requests are dropped, and counted.
            wanted: whether a scope looks for crowds.
        """
        pending, self._rows = self._rows, {}
        grouped: dict[tuple[str, int], dict[tuple[str, str, str], list[bytes]]] = {}
        for (pane, packed), rows in pending.items():
            names = unpack_names(packed)
            if wanted(names.scope):
                groups = grouped.setdefault((names.scope, pane), {})
                # Names that differ in nothing that is told here are one group.
                groups.setdefault((names.pool, names.template, names.adapter), []).extend(rows)
        for (scope, pane), groups in sorted(grouped.items()):
            dropped = _shorten(groups, max_rows)
            told = tuple(AskedRows(*names, b"".join(sorted(rows))) for names, rows in sorted(groups.items()) if rows)
            yield Asked(scope, pane, at_ms, told, dropped)


def _shorten(groups: dict[tuple[str, str, str], list[bytes]], max_rows: int) -> int:
    """Leaves the first `max_rows` rows over all groups; returns how many were dropped."""
    dropped = sum(map(len, groups.values())) - max_rows
    if dropped <= 0:
        return 0
    bar = sorted(row for rows in groups.values() for row in rows)[max_rows]
    for names, rows in groups.items():
        groups[names] = [row for row in rows if row < bar]
    return dropped
