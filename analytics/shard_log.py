"""Entries of a demand shard's logs: what was decided about a fact, and as much of the fact as a replay needs.

The decision is written, never derived again: it depended on the watermark and the policy of its moment. An entry with
a pane lies in slot `pane mod slots`; what only counts lies in one further slot.
"""

from __future__ import annotations

import enum
import struct

from analytics.second_sight import Sight


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
COUNTED_BYTES = _COUNTED.size
MARK = bytes((Fate.SLIDE,))
BARE = {fate: bytes((fate,)) for fate in (Fate.NOT_DEMAND, Fate.LATE, Fate.DUPLICATE, Fate.DEAD, Fate.REWARD)}
"""Entries that are nothing but their fate."""


def counted(sight: Sight, chain_kept: bool, tat_us: int) -> bytes:
    """Head of the entry of a counted request; the kept part of its fact follows."""
    return _COUNTED.pack(Fate.COUNTED, sight, chain_kept, tat_us)


def read_counted(entry: bytes) -> tuple[Sight, bool, int]:
    """What `counted` wrote."""
    _, sight, chain_kept, tat_us = _COUNTED.unpack_from(entry)
    return Sight(sight), bool(chain_kept), tat_us


def second_phase(pane: int, identity: int) -> bytes:
    """Entry of a second phase: the identity lives as long as the later of its panes."""
    return _SECOND.pack(Fate.SECOND_PHASE, pane, identity)


def read_second_phase(entry: bytes) -> tuple[int, int]:
    """Pane and identity of a `second_phase`."""
    _, pane, identity = _SECOND.unpack(entry)
    return pane, identity


PLAIN = counted(Sight.NONE, True, 0)
"""Head of the common entry."""
