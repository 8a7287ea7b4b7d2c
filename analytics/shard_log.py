"""The logs of a demand shard: what was decided about each fact, and as much of the fact as a replay needs.

The decision is written, never derived again: it depended on the watermark and the policy of its moment. Entries with a
pane lie in slot `pane mod slots` until a blob of that pane holds them; what only counts lies in one further slot until
the next slide writes the counters down.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterator

from analytics.second_sight import Sight
from analytics.stores import LogStore


class Fate(enum.IntEnum):
    """Where a record went; the first six are the terms of the accounting (DESIGN §3.2)."""

    COUNTED = 0
    SECOND_PHASE = 1
    NOT_DEMAND = 2
    LATE = 3
    DUPLICATE = 4
    DEAD = 5
    REWARD = 6
    SLIDE = 7
    """A mark: everything before it in this slot was published."""


ACCOUNTED = (Fate.COUNTED, Fate.SECOND_PHASE, Fate.NOT_DEMAND, Fate.LATE, Fate.DUPLICATE, Fate.DEAD)

_COUNTED = struct.Struct(">BBBq")
_SECOND = struct.Struct(">BqQ")
_MARK = bytes((Fate.SLIDE,))
_BARE = {fate: bytes((fate,)) for fate in (Fate.NOT_DEMAND, Fate.LATE, Fate.DUPLICATE, Fate.DEAD, Fate.REWARD)}


def counted(sight: Sight, chain_kept: bool, tat_us: int) -> bytes:
    """Head of the entry of a counted request; the kept part of its fact follows."""
    return _COUNTED.pack(Fate.COUNTED, sight, chain_kept, tat_us) if tat_us else _NOTHING_TAKEN[sight, chain_kept]


_NOTHING_TAKEN = {(s, kept): _COUNTED.pack(Fate.COUNTED, s, kept, 0) for s in Sight for kept in (False, True)}
PLAIN = _NOTHING_TAKEN[Sight.NONE, True]
"""Head of the common entry."""


def read_counted(entry: bytes) -> tuple[Sight, bool, int, bytes]:
    """What `counted` wrote, and the kept part of the fact."""
    _, sight, chain_kept, tat_us = _COUNTED.unpack_from(entry)
    return Sight(sight), bool(chain_kept), tat_us, entry[_COUNTED.size :]


def second_phase(pane: int, identity: int) -> bytes:
    """Entry of a second phase: the identity lives as long as the later of its panes."""
    return _SECOND.pack(Fate.SECOND_PHASE, pane, identity)


def read_second_phase(entry: bytes) -> tuple[int, int]:
    """Pane and identity of a `second_phase`."""
    _, pane, identity = _SECOND.unpack(entry)
    return pane, identity


class ShardLog:
    """Which panes have entries in which slot, and which slots have entries since the last slide."""

    def __init__(self, store: LogStore, slots: int) -> None:
        self._store = store
        self._slots = slots
        self._logged: list[set[int]] = [set() for _ in range(slots)]
        self._unmarked = [False] * slots

    def append(self, pane: int, entry: bytes) -> None:
        """Writes an entry of a pane."""
        slot = pane % self._slots
        self._store.append(slot, entry)
        self._logged[slot].add(pane)
        self._unmarked[slot] = True

    def tally(self, fate: Fate) -> None:
        """Writes an entry that is nothing but its fate."""
        self._store.append(self._slots, _BARE[fate])

    def holds(self, pane: int) -> bool:
        """Whether a pane has entries that no blob holds."""
        return pane in self._logged[pane % self._slots]

    def close(self, due: Callable[[int], bool], dump: Callable[[int], bytes]) -> list[int]:
        """Empties the slots with a pane that is due, after blobs of all their panes were put; returns which panes.

        A slot has several panes only when times are far apart, so hardly any is closed early.
        """
        closed: list[int] = []
        for slot, logged in enumerate(self._logged):
            if any(map(due, logged)):
                for pane in sorted(logged):
                    self._store.put(pane, dump(pane))
                    closed.append(pane)
                logged.clear()
                self._store.clear(slot)
                self._unmarked[slot] = False
        return closed

    def mark_slide(self) -> None:
        """Marks everything so far as published, and forgets what only counted: the counters were written down."""
        for slot, unmarked in enumerate(self._unmarked):
            if unmarked:
                self._store.append(slot, _MARK)
                self._unmarked[slot] = False
        self._store.clear(self._slots)

    def replay(self) -> Iterator[tuple[bytes, bool]]:
        """After a restore: every entry of a pane, and whether it is newer than the last slide."""
        for slot in range(self._slots):
            entries = list(self._store.read(slot))
            published = max((at for at, entry in enumerate(entries) if entry[0] == Fate.SLIDE), default=-1)
            for at, entry in enumerate(entries):
                if entry[0] != Fate.SLIDE:
                    yield entry, at > published
            self._unmarked[slot] = published < len(entries) - 1

    def replayed(self, pane: int) -> None:
        """Says that an entry of `replay` belongs to this pane."""
        self._logged[pane % self._slots].add(pane)

    def tallies(self) -> Iterator[Fate]:
        """After a restore: what only counted since the last slide."""
        for entry in self._store.read(self._slots):
            yield Fate(entry[0])
