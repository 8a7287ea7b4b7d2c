"""The requests of a scope's last minutes, pane by pane, as they must survive a crash; and a pane's in columns (D1, D2).

Each message is one record of the store, written once and removed when its pane leaves. Everything that counts is
derived from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from analytics.asked import Asked, AskedRows, row_bytes
from analytics.records import Record, Section, pack, path, unpack
from analytics.running_entropy import Integers

AskedDimension = Literal["query", "template", "adapter", "prefix_family"]
ASKED_DIMENSIONS: tuple[AskedDimension, ...] = ("query", "template", "adapter", "prefix_family")

_NAMED: tuple[AskedDimension, ...] = ("template", "adapter")
"""Those of which a request may have no key."""

_ROW = np.dtype([("at_ms", ">i8"), ("identity", ">i8"), ("user", ">i8"), ("query", "V16")])
_LEAD = np.dtype([("first", "<i8"), ("second", "<i8")])
Rows = NDArray[np.void]
_HALVES = np.dtype([("rest", "V24"), ("high", ">i8"), ("low", ">i8")])
ODD = np.int64(0x1E3779B97F4A7C15)
"""Numbers times this differ in their upper bits, hashes in all: two of either kind are told apart by one word."""


class AskedRecord(Record, frozen=True, array_like=True):
    """A message as it is kept."""

    serial: int
    asked: Asked


@dataclass(frozen=True)
class Column:
    """A pane's requests that have a key in some dimension.

    Attributes:
        keys: the distinct ones: 16 bytes of a query or of a family's hash, or a name in UTF-8.
        which: of each request, the place of its key in `keys`.
        users: a 64-bit hash each; whoever has no name is a user of his own.
        at_ms: event times.
        anonymous: requests that name no user.
    """

    keys: Sequence[bytes]
    which: Integers
    users: Integers
    at_ms: Integers
    anonymous: int


@dataclass(frozen=True)
class Led:
    """A pane's requests that tell their segments.

    Attributes:
        rows: of `_ROW`.
        hashes: 16 bytes each, a row a request, a column a segment; zeros where it has no more.
        marks: the same as numbers; 0 where it has no more.
    """

    rows: Rows
    hashes: Rows
    marks: Integers


class AskedPanes:
    """Messages by pane.

    Args:
        max_pane_events: requests that a pane takes; further ones are only counted, as dropped.
    """

    def __init__(self, max_pane_events: int, store: Section) -> None:
        self._max_pane_events = max_pane_events
        self._store = store
        self._held: dict[int, dict[int, Asked]] = {}
        self._events: dict[int, int] = {}
        self._names: dict[int, set[tuple[AskedDimension, str]]] = {}
        self._serial = 0

    def __bool__(self) -> bool:
        return bool(self._held)

    @property
    def newest(self) -> int:
        """The latest pane that is held; there must be one."""
        return max(self._held)

    def after(self, pane: int) -> int | None:
        """The first pane after one that is held; None where there is none."""
        return min((held for held in self._held if held > pane), default=None)

    def add(self, asked: Asked) -> None:
        """Takes a message; where its pane is full, only that there was one."""
        count = _requests(asked)
        if self._events.get(asked.pane, 0) + count > self._max_pane_events:
            asked = Asked(asked.scope, asked.pane, asked.at_ms, (), asked.dropped + count)
        self._serial += 1
        self._hold(self._serial, asked)
        self._store.put(_key(asked.pane, self._serial), pack(AskedRecord(1, self._serial, asked)))

    def inside(self, first: int, last: int) -> list[int]:
        """The panes that are held between two, both included, in order."""
        return sorted(pane for pane in self._held if first <= pane <= last)

    def events(self, panes: Iterable[int]) -> int:
        """Requests in these panes."""
        return sum(self._events[pane] for pane in panes)

    def version(self, pane: int) -> int:
        """A number that grows with each message of a pane."""
        return max(self._held[pane])

    def dropped(self, panes: Iterable[int]) -> int:
        """Requests of these panes for which there was no room somewhere."""
        return sum(asked.dropped for pane in panes for asked in self._held[pane].values())

    def several(self, dimension: AskedDimension, panes: Iterable[int]) -> bool:
        """Whether requests of these panes have two keys or more in a dimension; of queries that is taken as so."""
        if dimension == "query":
            return True
        names = {name for pane in panes for kind, name in self._names[pane] if kind == dimension}
        return len(names) > 1

    def pools(self, panes: Iterable[int]) -> list[str]:
        """The pools that these panes' requests went to, in order."""
        return sorted({group.pool for group in self._groups(panes)})

    def column(self, dimension: AskedDimension, pane: int) -> Column:
        """A pane in columns; those of families are found in `led`."""
        groups = [group for group in self._groups((pane,)) if dimension == "query" or _name(group, dimension)]
        groups.sort(key=lambda group: group.leads)
        rows = _rows(groups)
        if dimension == "query":
            halves = rows.view(_HALVES)
            with np.errstate(over="ignore"):
                mixed = halves["high"].astype(np.int64) * ODD + halves["low"].astype(np.int64)
            _, first, which = np.unique(mixed, return_index=True, return_inverse=True)
            return column_of(rows, rows["query"][first].tolist(), which)
        names = sorted({_name(group, dimension) for group in groups})
        counts = [_count(group) for group in groups]
        which = np.repeat(np.array([names.index(_name(group, dimension)) for group in groups], dtype=np.int64), counts)
        return column_of(rows, [name.encode() for name in names], which)

    def led(self, pane: int) -> Led:
        """A pane's requests that tell their segments."""
        groups = [group for group in self._groups((pane,)) if group.leads]
        most = max((group.leads for group in groups), default=0)
        kinds = sorted({group.leads for group in groups})
        rows = _told(groups, most)
        if len(kinds) > 1:  # they were told with different settings
            rows = np.zeros(sum(map(_count, groups)), dtype=_led(most))
            begin = 0
            for leads in kinds:
                own = _told(groups, leads)
                part = rows[begin : begin + len(own)]
                part["row"], part["leads"][:, :leads] = own["row"], own["leads"]
                begin += len(own)
        hashes = rows["leads"]
        return Led(rows["row"], hashes.view("V16"), _marks(hashes))

    def forget(self, before: int) -> None:
        """Drops the panes before this one."""
        for pane in [pane for pane in self._held if pane < before]:
            for serial in self._held.pop(pane):
                self._store.remove(_key(pane, serial))
            del self._events[pane], self._names[pane]

    def restore(self, blob: bytes) -> None:
        """Takes back one message."""
        record = unpack(blob, AskedRecord)
        self._serial = max(self._serial, record.serial)
        self._hold(record.serial, record.asked)

    def _hold(self, serial: int, asked: Asked) -> None:
        self._held.setdefault(asked.pane, {})[serial] = asked
        self._events[asked.pane] = self._events.get(asked.pane, 0) + _requests(asked)
        names = self._names.setdefault(asked.pane, set())
        for group in asked.groups:
            names.update((kind, name) for kind in _NAMED if (name := _name(group, kind)))

    def _groups(self, panes: Iterable[int]) -> list[AskedRows]:
        return [group for pane in panes for asked in self._held[pane].values() for group in asked.groups]


def column_of(rows: Rows, keys: Sequence[bytes], which: Integers) -> Column:
    """Requests in columns.

    Args:
        keys, which: as in `Column`.
    """
    known = rows["user"].astype(np.int64)
    users = np.where(known == 0, rows["identity"], known).astype(np.int64)
    at_ms = rows["at_ms"].astype(np.int64)
    return Column(keys, which.astype(np.int64), users, at_ms, int((known == 0).sum()))


def marks_of(hashes: Sequence[bytes]) -> Integers:
    """Hashes as `Led.marks` has them."""
    return _marks(np.frombuffer(b"".join(hashes), dtype=_LEAD))


def _marks(hashes: Rows) -> Integers:
    with np.errstate(over="ignore"):
        found: Integers = hashes["first"] * ODD + hashes["second"]
    return found


def _rows(groups: Sequence[AskedRows]) -> Rows:
    """Of groups in the order of their leads."""
    parts = [_told(groups, leads)["row"] for leads in sorted({group.leads for group in groups})]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=_ROW)


def _told(groups: Iterable[AskedRows], leads: int) -> Rows:
    """The rows of the groups with so many leads, as they were told."""
    return np.frombuffer(b"".join(group.rows for group in groups if group.leads == leads), dtype=_led(leads))


@cache
def _led(leads: int) -> np.dtype[np.void]:
    return np.dtype([("row", _ROW), ("leads", _LEAD, (leads,))])


def _requests(asked: Asked) -> int:
    return sum(map(_count, asked.groups))


def _count(group: AskedRows) -> int:
    return len(group.rows) // row_bytes(group.leads)


def _name(group: AskedRows, dimension: AskedDimension) -> str:
    return group.template if dimension == "template" else group.adapter


def _key(pane: int, serial: int) -> str:
    return path(str(pane), str(serial))
