"""The queue of one scope's queries: how often each is asked for, as levels that fade without being touched (D6).

A message of demand tells of up to fifty queries at once, so levels lie in a log of patches, one a message.
"""

from __future__ import annotations

import math

from analytics.decay import EMPTY, Decay
from analytics.patch_log import PatchLog
from analytics.records import Record, Section, pack, path

FADED = 0.01
"""A queue whose 99th percentile is below a hundredth of an arrival is gone."""
SPARE_LEVELS = 16
"""How many outdated ones the store may hold beside twice the present ones: most scopes are small."""


class LevelsRecord(Record, frozen=True, array_like=True):
    """What one call changed of a scope's levels: some as they are then, and the queries that left."""

    scope: str
    levels: dict[str, float]
    gone: tuple[str, ...]


class QueueRecord(Record, frozen=True, array_like=True):
    """A scope's queue as it is kept: how fast it fades, what its last sorting found, whether another may differ."""

    scope: str
    mean_life_ms: int
    sorted_ms: int | None
    p99_level: float
    touched: bool = True


class ScopeQueue:
    """One scope's queue: a level a query.

    Args:
        store: of the levels of all scopes.

    Attributes:
        levels: their changes are to be written to `log`.
        sorted_ms, p99: when it was sorted last, and the 99th percentile of its levels then.
        touched: whether another sorting may find something else.
    """

    def __init__(self, scope: str, store: Section) -> None:
        self.scope = scope
        self.levels: dict[str, float] = {}
        self.log: PatchLog[str] = PatchLog(Section(store, path(scope)), SPARE_LEVELS, self._patch)
        self.sorted_ms: int | None = None
        self.p99 = EMPTY
        self.touched = True

    @property
    def fades_ms(self) -> int:
        """When what the last sorting found has faded."""
        return math.ceil((self.p99 - math.log(FADED)) * self.mean_life_ms)

    def fade(self, mean_life_ms: int) -> None:
        """Sets how fast it fades; says nothing about the levels that it holds."""
        self.mean_life_ms = mean_life_ms
        self.decay = Decay.mean_life(mean_life_ms)

    def restore(self, key: str, record: LevelsRecord) -> None:
        """Takes back what one call changed."""
        self.levels.update(record.levels)
        for query in record.gone:
            self.levels.pop(query, None)
        self.log.restored(key, len(record.levels) + len(record.gone))

    def _patch(self, queries: list[str]) -> bytes:
        levels = {query: self.levels[query] for query in queries if query in self.levels}
        gone = tuple(query for query in queries if query not in levels)
        return pack(LevelsRecord(1, self.scope, levels, gone))
