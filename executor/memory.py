"""Bounded memories: what this process knows of outcomes and commands without asking anybody."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import ItemsView
from typing import Generic, TypeVar

from schemas.warmup_outcome import Status

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The last `bound` entries by key; the oldest leaves first.

    Args:
        bound: how many are kept (≥ 1).
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._entries: OrderedDict[K, V] = OrderedDict()

    def put(self, key: K, value: V) -> None:
        """Keeps an entry; a repetition replaces it and makes it young again."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._bound:
            self._entries.popitem(last=False)

    def get(self, key: K) -> V | None:
        """The entry, if it is still kept."""
        return self._entries.get(key)

    def pop(self, key: K) -> V | None:
        """Takes an entry out."""
        return self._entries.pop(key, None)

    def items(self) -> ItemsView[K, V]:
        """All entries, the oldest first."""
        return self._entries.items()

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)


PUBLISHED_BOUND = 300_000
"""Outcomes remembered by id: about an hour at 80 a second, 40 MB."""


class Published:
    """Outcomes that are known to be in warmup.outcomes, ours and others', by id.

    It covers what the ledger may not know yet: the moment between publishing and writing, and a Redis that lost its
    data without our noticing. It tells others' commands how those ended that they wait for.
    """

    def __init__(self, bound: int = PUBLISHED_BOUND) -> None:
        self._ids: Recent[bytes, Status] = Recent(bound)

    def add(self, outcome_id: str, status: Status) -> None:
        """This outcome is in the topic."""
        self._ids.put(bytes.fromhex(outcome_id), status)

    def status(self, outcome_id: str) -> Status | None:
        """How it ended; None where that is not known."""
        return self._ids.get(bytes.fromhex(outcome_id))

    def __contains__(self, outcome_id: str) -> bool:
        return bytes.fromhex(outcome_id) in self._ids

    def __len__(self) -> int:
        return len(self._ids)
