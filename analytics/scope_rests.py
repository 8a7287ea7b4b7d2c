"""Scopes whose texts are nowhere: when one command after the other finds no text, the scope's prefixes rest.

A target that was refused for want of its text rests by itself (`analytics.targets`). That does not help where a
producer withholds every text: each conversation is another target, refused once. So refusals are counted by scope,
each command once; a prefix that was warmed ends the count. After a rest one command looks again; while it finds
nothing either the next rest is twice as long, up to a bound.

Whether a scope rests depends on nothing that differs between the arms: it holds for all of its units alike.
"""

from __future__ import annotations

from msgspec import structs

from analytics.records import Record, Section, pack, path, unpack
from analytics.statements import NO_TEXT
from schemas import WarmupOutcome

PATIENCE = 8
"""So many commands in a row that found no text send a scope to rest; where half of its texts lie ready that is rare."""

_PREFIX = "prefix:"


class RestRecord(Record, frozen=True, array_like=True):
    """What is remembered of a scope.

    Attributes:
        misses: commands in a row that found no text; `counted` is the last one.
        rest_ms, until_ms: length and end of its rest; 0 before the first one.
        probe: the command that looks again after a rest, until its outcome.
        keep_ms: from when on none of this matters.
    """

    scope: str
    misses: int = 0
    counted: str = ""
    rest_ms: int = 0
    until_ms: int = 0
    probe: str = ""
    keep_ms: int = 0


class ScopeRests:
    """Every scope of a pool that misses texts.

    Args:
        longest_ms: no rest is longer.
    """

    def __init__(self, longest_ms: int, store: Section) -> None:
        self._longest_ms = longest_ms
        self._store = store
        self._held: dict[str, RestRecord] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def until_ms(self, scope: str) -> int:
        """End of a scope's rest; 0 where it has none."""
        held = self._held.get(scope)
        return 0 if held is None else held.until_ms

    def issued(self, scope: str, command_id: str, expires_ms: int) -> None:
        """A prefix of a scope was commanded. After a rest it stays the only one until its outcome, or its expiry."""
        held = self._held.get(scope)
        if held is not None and held.rest_ms:
            keep_ms = max(held.keep_ms, expires_ms)
            self._put(structs.replace(held, until_ms=expires_ms, probe=command_id, keep_ms=keep_ms))

    def on_outcome(self, outcome: WarmupOutcome, first_ms: int) -> None:
        """Takes an outcome; those of other targets than prefixes say nothing.

        Args:
            first_ms: length of a first rest, and how far apart refusals in a row may be.
        """
        if not outcome.target_key.startswith(_PREFIX):
            return
        held = self._held.get(outcome.scope)
        if outcome.status in ("applied", "resident"):
            if held is not None:
                self._drop(outcome.scope)
            return
        if outcome.reason not in NO_TEXT:
            return
        held = held or RestRecord(1, outcome.scope)
        at_ms, command = outcome.finished_at_ms, outcome.command_id
        if held.rest_ms and command != held.probe:
            return  # it was issued before the rest began
        if command == held.counted:
            return  # another replica says the same
        misses = held.misses + 1
        if misses < PATIENCE:
            self._put(structs.replace(held, misses=misses, counted=command, keep_ms=at_ms + first_ms))
            return
        rest_ms = min(self._longest_ms, 2 * held.rest_ms or first_ms)
        self._put(RestRecord(1, outcome.scope, misses, command, rest_ms, at_ms + rest_ms, "", at_ms + 2 * rest_ms))

    def forget(self, at_ms: int) -> None:
        """Drops what no longer matters. A rest is known for as long again: the next is longer."""
        for scope in [scope for scope, held in self._held.items() if held.keep_ms <= at_ms]:
            self._drop(scope)

    def restore(self, blob: bytes) -> None:
        """Takes back one scope."""
        record = unpack(blob, RestRecord)
        self._held[record.scope] = record

    def _put(self, record: RestRecord) -> None:
        self._held[record.scope] = record
        self._store.put(path(record.scope), pack(record))

    def _drop(self, scope: str) -> None:
        del self._held[scope]
        self._store.remove(path(scope))
