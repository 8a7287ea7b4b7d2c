"""Answers that must leave the cache: sent for until an executor says that they are gone, or their entry has ended.

A command may meet a Redis that does not answer, or expire before an executor comes to it, and a bad answer is served
meanwhile. So it is sent again, after pauses that double; after some tries it is given up, which the planner's report
counts. The entry's own end, which Redis keeps without us, ends the matter too.
"""

from __future__ import annotations

from msgspec import structs

from analytics.known_answers import KnownAnswer
from analytics.records import Record, Section, pack, path, unpack
from analytics.statements import verdict_of
from schemas import WarmupOutcome

TRIES = 8
FIRST_PAUSE_MS = 10_000
"""Between the end of a first command and the second one; scaled. The pauses between all tries are 21 minutes together,
and an entry lives for half an hour."""

_TALLY = ""
"""Key of the tally; those of answers are never empty."""


class WithdrawalRecord(Record, frozen=True, array_like=True):
    """An answer that must leave the cache.

    Attributes:
        fingerprint: of its entry's vector. until_ms: end of its entry.
        version: content version of the commands; nothing else of its query has it.
        trigger: why it must go.
        tries: commands so far. command_id, attempt: of the last one.
        due_ms: from when on the next one may go out.
    """

    scope: str
    query: str
    answer: KnownAnswer
    fingerprint: str
    version: int
    until_ms: int
    trigger: str
    tries: int = 0
    command_id: str = ""
    attempt: int = 0
    due_ms: int = 0


class WithdrawalTally(Record, frozen=True, array_like=True):
    """What the next report tells: commands that were sent again, and answers that were given up."""

    repeated: int = 0
    given_up: int = 0


class Withdrawals:
    """Those of every scope.

    Args:
        first_pause_ms: scaled.
    """

    def __init__(self, first_pause_ms: int, store: Section) -> None:
        self._first_pause_ms = first_pause_ms
        self._store = store
        self._held: dict[tuple[str, str], WithdrawalRecord] = {}
        self._tally = WithdrawalTally(1)
        self._wake_ms = 0

    def __contains__(self, place: tuple[str, str]) -> bool:
        """Whether an answer to a scope's query is to leave the cache."""
        return place in self._held

    def add(self, record: WithdrawalRecord) -> None:
        """An answer must go."""
        self._put(record)

    def due(self, at_ms: int) -> list[WithdrawalRecord]:
        """Those to send for now. What has ended by itself and what was tried too often is forgotten."""
        if not self._held or at_ms < self._wake_ms:
            return []
        found = []
        for held in sorted(self._held.values(), key=lambda held: (held.scope, held.query)):
            if at_ms >= held.until_ms:
                self._drop(held)
            elif at_ms >= held.due_ms and held.tries >= TRIES:
                self._drop(held)
                self._count(structs.replace(self._tally, given_up=self._tally.given_up + 1))
            elif at_ms >= held.due_ms:
                found.append(held)
        # Only a saving: until then another look would find the same.
        self._wake_ms = min((min(held.due_ms, held.until_ms) for held in self._held.values()), default=0)
        return found

    def sent(self, scope: str, query: str, command_id: str, attempt: int, expires_ms: int) -> None:
        """Its command went out. Where nothing is heard of it, it has ended when it expires."""
        held = self._held[scope, query]
        if held.tries:
            self._count(structs.replace(self._tally, repeated=self._tally.repeated + 1))
        tries = held.tries + 1
        due_ms = expires_ms + self._pause_ms(tries)
        self._put(structs.replace(held, tries=tries, command_id=command_id, attempt=attempt, due_ms=due_ms))

    def on_outcome(self, scope: str, query: str, outcome: WarmupOutcome) -> None:
        """Takes an outcome of the last command; earlier ones have been waited for long enough."""
        held = self._held.get((scope, query))
        if held is None or outcome.command_id != held.command_id:
            return
        if verdict_of(outcome).served:
            self._drop(held)
        else:
            again_ms = outcome.finished_at_ms + self._pause_ms(held.tries)
            self._put(structs.replace(held, due_ms=min(held.due_ms, again_ms)))

    def reported(self) -> dict[str, float]:
        """What a report tells of them; the tally begins anew."""
        told = {
            "withdrawals_open": float(len(self._held)),
            "withdrawals_repeated": float(self._tally.repeated),
            "withdrawals_given_up": float(self._tally.given_up),
        }
        if self._tally != WithdrawalTally(1):
            self._tally = WithdrawalTally(1)
            self._store.remove(_TALLY)
        return told

    def restore(self, key: str, blob: bytes) -> None:
        """Takes back one answer, or the tally."""
        if key == _TALLY:
            self._tally = unpack(blob, WithdrawalTally)
        else:
            record = unpack(blob, WithdrawalRecord)
            self._held[record.scope, record.query] = record

    def _pause_ms(self, tries: int) -> int:
        return self._first_pause_ms << tries - 1

    def _put(self, record: WithdrawalRecord) -> None:
        self._held[record.scope, record.query] = record
        self._wake_ms = min(self._wake_ms, record.due_ms)
        self._store.put(path(record.scope, record.query), pack(record))

    def _drop(self, held: WithdrawalRecord) -> None:
        del self._held[held.scope, held.query]
        self._store.remove(path(held.scope, held.query))

    def _count(self, tally: WithdrawalTally) -> None:
        self._tally = tally
        self._store.put(_TALLY, pack(tally))
