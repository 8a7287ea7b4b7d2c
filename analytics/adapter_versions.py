"""The announced versions of adapters: what may be loaded, from when on, and which version stands for which.

A version stays until another one has replaced it, so how many there are is for whoever announces them. Beyond a bound
the scope with the most of them loses the one that was out of use for longest: no scope's announcements end another's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, KeysView

from analytics.records import Record, Section, pack, path, unpack
from schemas import Adapter, Announcement
from schemas.canonical import adapter_key, adapter_name

MAX_VERSIONS = 2_048
"""Versions of all scopes that are known in a pool: as many adapters as it remembers uses of."""


class KnownRecord(Record, frozen=True, array_like=True):
    """An announced version of an adapter as it is kept.

    Attributes:
        announcement: its id, so that a withdrawal finds it.
        replaces: the version that it ends; empty where there is none.
        from_ms: event time from which it is the one that requests name.
    """

    announcement: str
    scope: str
    name: str
    version: str
    replaces: str
    from_ms: int
    rank: int | None
    sha256: str | None
    source: str | None
    alpha: float | None = None
    dropout: float | None = None
    target_modules: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its target key."""
        return adapter_key(self.name, self.version)

    @property
    def slot(self) -> str:
        """Its name among the adapters of all scopes."""
        return path(self.scope, adapter_name(self.name, self.version))

    @property
    def target(self) -> Adapter:
        """What a command for it names."""
        return Adapter(
            name=self.name,
            version=self.version,
            rank=self.rank,
            alpha=self.alpha,
            dropout=self.dropout,
            target_modules=self.target_modules,
            sha256=self.sha256,
            source=self.source,
        )

    @property
    def asked_as(self) -> tuple[str, ...]:
        """What requests call it, and what they called the version that it replaces."""
        replaced = (adapter_name(self.name, self.replaces),) if self.replaces else ()
        return (adapter_name(self.name, self.version), *replaced)


class AdapterVersions:
    """Versions of every scope in one pool, by announcement."""

    def __init__(self, store: Section) -> None:
        self._store = store
        self._known: dict[str, KnownRecord] = {}
        self._named: dict[tuple[str, str], list[KnownRecord]] = {}
        self._scopes: Counter[str] = Counter()

    def __iter__(self) -> Iterator[KnownRecord]:
        return iter(self._known.values())

    @property
    def scopes(self) -> KeysView[str]:
        """Scopes that have announced an adapter."""
        return self._scopes.keys()

    def __len__(self) -> int:
        return len(self._known)

    def on_announcement(self, message: Announcement, used_ms: Callable[[KnownRecord], int]) -> None:
        """Takes a new version, or one back.

        Args:
            used_ms: event time of a version's last use; 0 where none is remembered.
        """
        held = self._known.get(message.announcement_id)
        if message.deleted and held is not None:
            self._drop(held)
        if message.deleted or held is not None:
            return
        record = KnownRecord(
            1,
            message.announcement_id,
            message.scope,
            message.name,
            message.version,
            message.replaces or "",
            message.at_ms,
            message.rank,
            message.sha256,
            message.source,
            message.alpha,
            message.dropout,
            message.target_modules,
        )
        self._hold(record)
        self._store.put(path(record.announcement), pack(record))
        if len(self) > MAX_VERSIONS:
            _, fullest = max((count, scope) for scope, count in self._scopes.items())
            theirs = (known for known in self if known.scope == fullest)
            self._drop(min(theirs, key=lambda known: (max(known.from_ms, used_ms(known)), known.announcement)))

    def replaced_ms(self, known: KnownRecord) -> float:
        """Event time from which another version stands for this one; infinite where none is announced."""
        others = self._named[known.scope, known.name]
        return min((other.from_ms for other in others if other.replaces == known.version), default=math.inf)

    def standing(self, at_ms: int) -> list[KnownRecord]:
        """Those that requests name at a time: in effect, and not replaced."""
        return [known for known in self if known.from_ms <= at_ms < self.replaced_ms(known)]

    def forget(self, before_ms: int) -> None:
        """Drops what was replaced before a time."""
        for old in [known for known in self if self.replaced_ms(known) <= before_ms]:
            self._drop(old)

    def restore(self, blob: bytes) -> None:
        """Takes back one version."""
        self._hold(unpack(blob, KnownRecord))

    def _hold(self, known: KnownRecord) -> None:
        self._known[known.announcement] = known
        self._scopes[known.scope] += 1
        self._named.setdefault((known.scope, known.name), []).append(known)

    def _drop(self, known: KnownRecord) -> None:
        del self._known[known.announcement]
        self._scopes[known.scope] -= 1
        if not self._scopes[known.scope]:
            del self._scopes[known.scope]
        self._store.remove(path(known.announcement))
        named = self._named[known.scope, known.name]
        named.remove(known)
        if not named:
            del self._named[known.scope, known.name]
