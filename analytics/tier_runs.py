"""What two tiers know of each run of blocks: a table by row, in the order of last use (D11)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

import numpy as np
import numpy.typing as npt

from analytics.records import Record, pack, unpack
from analytics.reuse_model import Floats, Ints

Flags = npt.NDArray[np.bool_]
COLUMNS = ("held", "blocks", "uses", "depth", "last_ms", "landed_ms", "warmed", "displaced")


class TierRunsRecord(Record, frozen=True, array_like=True):
    """Keys and rows in the order of their last use, rows that are free, and the columns."""

    keys: tuple[str | int, ...]
    rows: tuple[int, ...]
    free: tuple[int, ...]
    columns: tuple[tuple[float, ...], ...]


class TierRuns:
    """The runs of both tiers; columns are replaced when they grow, so nobody keeps one.

    Args:
        max_blocks: of both tiers together.

    Attributes:
        held: blocks in the small cache. blocks: of the run, in either tier; 0 in a row that is free.
        uses, last_ms: how often and when it was asked for. depth: in its last prompt.
        landed_ms: of its last warm-up. warmed: blocks that a warm-up brought and that nobody has asked for since.
        displaced: whether a warm-up displaced it.
        held_blocks, known_blocks: sums over the small cache and over both.
    """

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._rows: OrderedDict[Hashable, int] = OrderedDict()
        self._free: list[int] = []
        self.held_blocks = self.known_blocks = 0
        self.held: Ints = np.zeros(0, np.int64)
        self.blocks: Ints = np.zeros(0, np.int64)
        self.uses: Ints = np.zeros(0, np.int64)
        self.depth: Ints = np.zeros(0, np.int64)
        self.last_ms: Floats = np.zeros(0)
        self.landed_ms: Floats = np.zeros(0)
        self.warmed: Ints = np.zeros(0, np.int64)
        self.displaced: Flags = np.zeros(0, np.bool_)
        self._grow(1024)

    def find(self, key: Hashable) -> int | None:
        """The row of a run that either tier holds."""
        return self._rows.get(key)

    def use(self, key: Hashable) -> int:
        """The row of a run that is asked for now; a new one where neither tier holds it."""
        row = self._rows.get(key)
        if row is not None:
            self._rows.move_to_end(key)
            return row
        if not self._free:
            self._grow(2 * len(self.held))
        row = self._free.pop()
        self._rows[key] = row
        self.held[row] = self.blocks[row] = self.uses[row] = 0
        self.last_ms[row] = self.landed_ms[row] = -np.inf
        self.warmed[row], self.displaced[row] = 0, False
        return row

    def hold(self, row: int, blocks: int) -> None:
        """All of a run is in the small cache now."""
        self.held_blocks += blocks - int(self.held[row])
        self.known_blocks += blocks - int(self.blocks[row])
        self.held[row] = self.blocks[row] = blocks

    def forget(self) -> list[int]:
        """The tiers are bounded: the longest untouched are gone. Returns their rows."""
        gone = []
        while self.known_blocks > self._max_blocks and len(self._rows) > 1:
            _, row = self._rows.popitem(last=False)
            self.known_blocks -= int(self.blocks[row])
            self.held_blocks -= int(self.held[row])
            self.held[row] = self.blocks[row] = 0
            self._free.append(row)
            gone.append(row)
        return gone

    def snapshot(self) -> bytes:
        """Versioned bytes of the table; keys of runs are strings or integers then."""
        keys = tuple(key for key in self._rows if isinstance(key, str | int))
        columns = tuple(tuple(getattr(self, name).astype(float).tolist()) for name in COLUMNS)
        return pack(TierRunsRecord(1, keys, tuple(self._rows.values()), tuple(self._free), columns))

    def restore(self, blob: bytes) -> None:
        """Takes what `snapshot` gave."""
        record = unpack(blob, TierRunsRecord)
        self._rows = OrderedDict(zip(record.keys, record.rows, strict=True))
        self._free = list(record.free)
        for name, column in zip(COLUMNS, record.columns, strict=True):
            setattr(self, name, np.array(column, dtype=getattr(self, name).dtype))
        self.known_blocks, self.held_blocks = int(self.blocks.sum()), int(self.held.sum())

    def _grow(self, size: int) -> None:
        more = size - len(self.held)
        self._free += range(size - 1, len(self.held) - 1, -1)
        for name in COLUMNS:
            setattr(self, name, np.pad(getattr(self, name), (0, more)))
