"""A log of patches: each record is what one call changed, so that many small changes cost one write.

Records are numbered and read in that order; of a thing that several speak of, the last word counts. When most of a log
is outdated, what there is is written once and the log begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from analytics.records import Section

PATCH_ENTRIES = 1_024
"""Most entries of one record."""
_DIGITS = 16

K = TypeVar("K", str, bytes)


class PatchLog(Generic[K]):
    """The records of one log, each an entry for each of some keys.

    Args:
        store: of this log alone.
        spare: how many outdated entries it may hold beside twice what is present.
        entries_of: the record that says how the things of some keys are now, or that they are gone.
    """

    def __init__(self, store: Section, spare: int, entries_of: Callable[[list[K]], bytes]) -> None:
        self._store = store
        self._spare = spare
        self._entries_of: Callable[[list[K]], bytes] = entries_of
        self._numbers: list[int] = []
        self._entries = 0

    def write(self, changed: Collection[K], present: Collection[K]) -> None:
        """Adds what changed; where that would outgrow what there is, all of that takes the log's place."""
        if not present or self._entries + len(changed) > 2 * len(present) + self._spare:
            self.renew(present)
        else:
            self._append(changed)

    def renew(self, present: Collection[K]) -> None:
        """Writes all that there is in the place of what is held; nothing is left where there is nothing."""
        outdated, self._entries = len(self._numbers), 0
        self._append(present)
        for number in self._numbers[:outdated]:
            self._store.remove(_key(number))
        del self._numbers[:outdated]

    def restored(self, key: str, entries: int) -> None:
        """Takes note of a record that was read back; records are read in the order of their keys."""
        self._numbers.append(int(key[-_DIGITS:]))
        self._entries += entries

    def _append(self, keys: Collection[K]) -> None:
        number = self._numbers[-1] + 1 if self._numbers else 0
        told = sorted(keys)
        for start in range(0, len(told), PATCH_ENTRIES):
            self._store.put(_key(number), self._entries_of(told[start : start + PATCH_ENTRIES]))
            self._numbers.append(number)
            number += 1
        self._entries += len(told)


def _key(number: int) -> str:
    return f"{number:0{_DIGITS}d}"
