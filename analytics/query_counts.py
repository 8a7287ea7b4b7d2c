"""How often each of some queries was asked for lately, out of the totals that the demand shards publish.

A pane's totals may be published again with a greater revision, which replaces the smaller one. Only queries that the
caller knows are kept, so a scope of which nothing is embedded leaves nothing here.
"""

from __future__ import annotations

from collections.abc import Callable

from analytics.envelopes import Partial
from analytics.records import Record, Section, pack, path, unpack

Place = tuple[int, str, int]
"""Start of the pane, pool, shard."""


class CountsRecord(Record, frozen=True, array_like=True):
    """The known queries of one pane and shard."""

    pane_start_ms: int
    pool: str
    shard: int
    revision: int
    counts: dict[str, int]


class QueryCounts:
    """Counts of a scope's queries over the panes that are held.

    Args:
        max_places: panes times shards times pools that are held, the oldest leave first. Producers name pools.
    """

    def __init__(self, max_places: int, store: Section) -> None:
        self._max_places = max_places
        self._store = store
        self._held: dict[Place, CountsRecord] = {}
        self._totals: dict[str, int] | None = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def add(self, partial: Partial, known: Callable[[str], bool]) -> bool:
        """Takes the totals of a pane unless a newer revision is held; says whether that changed something."""
        place = (partial.pane_start_ms, partial.pool, partial.shard)
        before = self._held.get(place)
        if before is not None and before.revision >= partial.revision:
            return False
        counts = {key.key: key.count for key in partial.top if key.count > 0 and known(key.key)}
        if not counts:
            if before is not None:
                self._drop(place)
            return before is not None
        record = CountsRecord(1, *place, partial.revision, counts)
        self._hold(record)
        self._store.put(_key(place), pack(record))
        if len(self._held) > self._max_places:
            self._drop(min(self._held))
        return True

    def forget(self, before_ms: int) -> None:
        """Drops the panes that began before a time."""
        for place in [place for place in self._held if place[0] < before_ms]:
            self._drop(place)

    def totals(self) -> dict[str, int]:
        """Requests of each query over the panes that are held. Not to be changed."""
        if self._totals is None:
            self._totals = {}
            for record in self._held.values():
                self._add(record, self._totals)
        return self._totals

    def last_ms(self) -> dict[str, int]:
        """The start of the last pane in which each query was asked for."""
        last: dict[str, int] = {}
        for (start_ms, _, _), record in self._held.items():
            for query in record.counts:
                last[query] = max(last.get(query, 0), start_ms)
        return last

    def restore(self, blob: bytes) -> None:
        """Takes back one record."""
        self._hold(unpack(blob, CountsRecord))

    def _hold(self, record: CountsRecord) -> None:
        place = (record.pane_start_ms, record.pool, record.shard)
        if place in self._held:
            self._totals = None
        elif self._totals is not None:
            self._add(record, self._totals)
        self._held[place] = record

    def _drop(self, place: Place) -> None:
        del self._held[place]
        self._store.remove(_key(place))
        self._totals = None

    @staticmethod
    def _add(record: CountsRecord, totals: dict[str, int]) -> None:
        for query, count in record.counts.items():
            totals[query] = totals.get(query, 0) + count


def _key(place: Place) -> str:
    start_ms, pool, shard = place
    return path(str(start_ms), pool, str(shard))
