"""One target of a pool: the command that is out, and where it is resident until when.

A target is *live* from its command until each named replica has told a terminal outcome, or the command expired. It
is resident on a replica from the moment something was seen there (an outcome, a Residency) for the time that policy
grants; an observation replaces older ones only, so that outcomes and residency may arrive in any order.
"""

from __future__ import annotations

from analytics.records import Record
from analytics.replicas import Ready

NO_BUCKET = -1
ANY_REPLICA = ""


class Stay(Record, frozen=True, array_like=True):
    """A target on a replica.

    Attributes:
        mark: of the replica's incarnation; 0 where it was not known.
        seen_ms: event time of the observation.
        until_ms: end of the residency; 0 when the target was lost.
    """

    replica: str
    mark: int
    seen_ms: int
    until_ms: int


class TargetRecord(Record, frozen=True, array_like=True):
    """A target as it is kept; see `Target`."""

    scope: str
    key: str
    command_id: str
    bucket: int
    attempt: int
    issued_ms: int
    expires_ms: int
    keep_ms: int
    charged: float
    waiting: tuple[str, ...]
    failed: bool
    stays: tuple[Stay, ...]
    refused_by: str = ""
    rest_ms: int = 0
    rests_until_ms: int = 0


class Target:
    """One target's memory.

    Attributes:
        bucket, attempt, issued_ms, expires_ms: of the last command; `NO_BUCKET` where there was none.
        keep_ms: until when the last command is worth remembering.
        charged: what the budget paid for each copy.
        waiting: replicas that still owe an outcome; `ANY_REPLICA` where the command named none.
        failed: whether the last command failed or expired anywhere.
        refused_by: the last command that found no content; empty after one that did.
        rest_ms, rests_until_ms: for how long and until when nothing is commanded because of that.
        queued_ms: when `TargetMemory` looks at it next; 0 before it was queued.
    """

    __slots__ = (
        "attempt",
        "bucket",
        "charged",
        "command_id",
        "expires_ms",
        "failed",
        "issued_ms",
        "keep_ms",
        "key",
        "queued_ms",
        "refused_by",
        "rest_ms",
        "rests_until_ms",
        "scope",
        "stays",
        "waiting",
    )

    def __init__(self, scope: str, key: str) -> None:
        self.scope = scope
        self.key = key
        self.command_id = ""
        self.bucket = NO_BUCKET
        self.attempt = 0
        self.issued_ms = 0
        self.expires_ms = 0
        self.keep_ms = 0
        self.charged = 0.0
        self.waiting: tuple[str, ...] = ()
        self.failed = False
        self.stays: dict[str, Stay] = {}
        self.refused_by = ""
        self.rest_ms = 0
        self.rests_until_ms = 0
        self.queued_ms = 0

    def live(self, at_ms: int) -> bool:
        """Whether its command may still be applied somewhere."""
        return bool(self.waiting) and at_ms < self.expires_ms

    def failed_by(self, at_ms: int) -> bool:
        """Whether the last command failed, or ran out without an outcome."""
        return self.failed or (bool(self.waiting) and at_ms >= self.expires_ms)

    def resident_until(self, replica: str, mark: int) -> int:
        """End of the residency on a replica in its present incarnation; 0 where it is not there."""
        stay = self.stays.get(replica)
        return stay.until_ms if stay is not None and stay.mark in (0, mark) else 0

    def anywhere_until(self) -> int:
        """The latest end of any residency, where a pool is one cache with one or more names, or of its rest."""
        return max(self.rests_until_ms, *(stay.until_ms for stay in self.stays.values()), 0)

    def missing(self, ready: Ready, at_ms: int) -> tuple[str, ...]:
        """Ready replicas where it will not be resident at a time; none while it rests."""
        if self.rests_until_ms > at_ms:
            return ()
        if not self.stays:
            return ready.names
        return tuple([name for name, until in zip(ready.names, self._untils(ready), strict=True) if until <= at_ms])

    def first_lapse(self, ready: Ready, at_ms: int) -> int:
        """When the first of the residencies that last beyond a time ends, or else the rest. There is one."""
        if self.rests_until_ms > at_ms:
            return self.rests_until_ms
        return min([until for until in self._untils(ready) if until > at_ms])

    def _untils(self, ready: Ready) -> list[int]:
        """End of the residency on each ready replica; 0 where it is not there."""
        held = map(self.stays.get, ready.names)
        return [
            stay.until_ms if stay is not None and stay.mark in (0, mark) else 0
            for stay, mark in zip(held, ready.marks, strict=True)
        ]

    @property
    def forget_ms(self) -> int:
        """From when on nothing of this matters any more. A rest is known for as long again: the next is longer."""
        return max(self.keep_ms, self.expires_ms, self.anywhere_until(), self.rests_until_ms + self.rest_ms)

    def next_attempt(self, bucket: int, at_ms: int) -> int:
        """Number of a further command: it goes on after a failure and within a bucket, else it starts again."""
        return self.attempt + 1 if bucket == self.bucket or self.failed_by(at_ms) else 1

    def see(self, replica: str, mark: int, seen_ms: int, until_ms: int) -> bool:
        """Takes an observation unless a later one is held; says whether it did."""
        held = self.stays.get(replica)
        if held is not None and seen_ms < held.seen_ms:
            return False
        self.stays[replica] = Stay(1, replica, mark, seen_ms, until_ms)
        return True

    def rest(self, command_id: str, finished_ms: int, first_ms: int, longest_ms: int) -> None:
        """There was no content for a command: rests once for it, however many of its replicas say so."""
        if command_id == self.refused_by:
            return
        self.refused_by = command_id
        self.rest_ms = min(longest_ms, 2 * self.rest_ms or first_ms)
        self.rests_until_ms = finished_ms + self.rest_ms

    def record(self) -> TargetRecord:
        """All of it that is kept."""
        return TargetRecord(
            1,
            self.scope,
            self.key,
            self.command_id,
            self.bucket,
            self.attempt,
            self.issued_ms,
            self.expires_ms,
            self.keep_ms,
            self.charged,
            self.waiting,
            self.failed,
            tuple(stay for _, stay in sorted(self.stays.items())),
            self.refused_by,
            self.rest_ms,
            self.rests_until_ms,
        )

    @classmethod
    def of(cls, record: TargetRecord) -> Target:
        """The target of a record."""
        target = cls(record.scope, record.key)
        target.command_id = record.command_id
        target.bucket, target.attempt = record.bucket, record.attempt
        target.issued_ms, target.expires_ms, target.keep_ms = record.issued_ms, record.expires_ms, record.keep_ms
        target.charged, target.waiting, target.failed = record.charged, record.waiting, record.failed
        target.stays = {stay.replica: stay for stay in record.stays}
        target.refused_by, target.rest_ms = record.refused_by, record.rest_ms
        target.rests_until_ms = record.rests_until_ms
        return target
