"""Scopes of which something was heard lately: they have their share of a pool although nothing of theirs may be hot."""

from __future__ import annotations

from analytics.records import Record, Section, pack, path, unpack


class ScopeRecord(Record, frozen=True, array_like=True):
    """A scope and when it was heard of last."""

    scope: str
    at_ms: int


class RecentScopes:
    """Scopes by the event time of the last sign of life.

    Args:
        life_ms: after so long a scope is forgotten.
    """

    def __init__(self, life_ms: int, store: Section) -> None:
        self._life_ms = life_ms
        self._store = store
        self._at_ms: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._at_ms)

    @property
    def names(self) -> frozenset[str]:
        """The scopes."""
        return frozenset(self._at_ms)

    def heard(self, scope: str, at_ms: int) -> None:
        """A sign of life."""
        if at_ms > self._at_ms.get(scope, -1):
            self._at_ms[scope] = at_ms
            self._store.put(path(scope), pack(ScopeRecord(1, scope, at_ms)))

    def forget(self, at_ms: int) -> None:
        """Drops those that were quiet for too long."""
        for scope in [scope for scope, seen_ms in self._at_ms.items() if at_ms - seen_ms > self._life_ms]:
            del self._at_ms[scope]
            self._store.remove(path(scope))

    def restore(self, blob: bytes) -> None:
        """Takes back one scope."""
        record = unpack(blob, ScopeRecord)
        self._at_ms[record.scope] = record.at_ms
