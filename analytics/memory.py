"""What a pool's planner remembers of each target: the command that is out, and where it is resident until when.

A target is *live* from its command until each named replica has told a terminal outcome, or the command expired. It
is resident on a replica from the moment something was seen there (an outcome, a Residency) for the time that policy
grants; an observation replaces older ones only, so that outcomes and residency may arrive in any order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from analytics.records import Record, Section, pack, path, unpack
from analytics.replicas import Ready
from schemas.residency import Residency
from schemas.warmup_outcome import OutcomeReason, WarmupOutcome

LASTING = frozenset({OutcomeReason.BELOW_BLOCK, OutcomeReason.UNSUPPORTED, OutcomeReason.ENGINE_REFUSED})
"""Reasons of a refusal that the next attempt would meet again: the replica counts as served for a residency's time."""

NO_ADAPTER = frozenset({OutcomeReason.ADAPTER_MISSING, OutcomeReason.DIGEST_MISMATCH, OutcomeReason.RANK_MISMATCH})
NO_TEXT = frozenset({OutcomeReason.TEXT_WITHHELD, OutcomeReason.CONTENT_MISSING, OutcomeReason.CONTENT_MISMATCH})
NO_CONTENT = NO_TEXT | NO_ADAPTER
"""Reasons of a refusal that every replica would give, and again for as long as nobody stores what is needed: the target
rests for a residency's time, and twice as long after each further such outcome, up to a bound."""

LONGEST_REST_MS = 3_600_000

NOTHING_SPENT = NO_ADAPTER | {OutcomeReason.ENGINE_REFUSED, OutcomeReason.STORE_UNAVAILABLE}
"""Reasons of a failure that came before any prefill."""

NO_BUCKET = -1
TAKEN_AWAY = frozenset({"unload", "invalidate"})
"""Actions after which a target is not there."""

ANY_REPLICA = ""


def kept_share(message: Residency) -> float:
    """How much of a target a replica still holds, 0 to 1; 1 where the statement names no amount."""
    if message.deleted or message.resident_tokens == 0 or message.bytes == 0:
        return 0.0
    if message.resident_tokens is None or not message.full_tokens:
        return 1.0
    return min(1.0, message.resident_tokens / message.full_tokens)


def unused_of(outcome: WarmupOutcome, charged: float) -> float:
    """What an outcome leaves of its charge: nothing where it does not tell what it spent, and may have spent all.

    An engine without usage details does not tell, nor does one that did not answer or was interrupted while it worked.
    """
    untold = (
        outcome.status == "applied"
        or (outcome.status == "failed" and outcome.reason not in NOTHING_SPENT)
        or (outcome.status == "cancelled" and outcome.apply_ms > 0)
    )
    return 0.0 if untold and not outcome.tokens_warmed else max(0.0, charged - outcome.tokens_warmed)


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
        return tuple(
            name
            for name, mark in zip(ready.names, ready.marks, strict=True)
            if self.resident_until(name, mark) <= at_ms
        )

    def first_lapse(self, ready: Ready, at_ms: int) -> int:
        """When the first of the residencies that last beyond a time ends, or else the rest. There is one."""
        if self.rests_until_ms > at_ms:
            return self.rests_until_ms
        untils = [self.resident_until(name, mark) for name, mark in zip(ready.names, ready.marks, strict=True)]
        return min(until for until in untils if until > at_ms)

    @property
    def forget_ms(self) -> int:
        """From when on nothing of this matters any more. A rest is known for as long again: the next is longer."""
        return max(self.keep_ms, self.expires_ms, self.anywhere_until(), self.rests_until_ms + self.rest_ms)

    def next_attempt(self, bucket: int, at_ms: int) -> int:
        """Number of a further command: it goes on after a failure and within a bucket, else it starts again."""
        return self.attempt + 1 if bucket == self.bucket or self.failed_by(at_ms) else 1


class TargetMemory:
    """Targets by scope and key, forgotten when they no longer matter; bounded.

    Args:
        max_targets: beyond it those are forgotten first that would be forgotten next anyway.
        longest_rest_ms: of a target without content.
    """

    def __init__(self, max_targets: int, store: Section, longest_rest_ms: int = LONGEST_REST_MS) -> None:
        self._max_targets = max_targets
        self._longest_rest_ms = longest_rest_ms
        self._store = store
        self._targets: dict[tuple[str, str], Target] = {}
        self._due: list[tuple[int, str, str]] = []

    def __len__(self) -> int:
        return len(self._targets)

    def get(self, scope: str, key: str) -> Target | None:
        """The memory of a target."""
        return self._targets.get((scope, key))

    def issued(
        self,
        scope: str,
        key: str,
        command_id: str,
        bucket: int,
        attempt: int,
        at_ms: int,
        expires_ms: int,
        keep_ms: int,
        charged: float,
        names: Iterable[str],
    ) -> None:
        """Remembers a command that goes out now."""
        target = self._targets.get((scope, key)) or self._new(scope, key)
        target.command_id = command_id
        target.bucket, target.attempt = bucket, attempt
        target.issued_ms, target.expires_ms, target.keep_ms = at_ms, expires_ms, keep_ms
        target.charged = charged
        target.waiting = tuple(names) or (ANY_REPLICA,)
        target.failed = False
        self._write(target)

    def on_outcome(self, outcome: WarmupOutcome, mark: int, stay_ms: int) -> float:
        """Takes an outcome.

        Args:
            mark: of the replica's incarnation.
            stay_ms: how long what was applied is taken as resident, and how long a target without content rests first.

        Returns:
            what the outcome says was charged and not used.
        """
        target = self._targets.get((outcome.scope, outcome.target_key))
        absent = outcome.reason is OutcomeReason.ALREADY_ABSENT
        served = absent or outcome.status in ("applied", "resident", "held_out", "shadow")
        turned_away = outcome.status in ("skipped", "rejected", "failed")
        refused = turned_away and outcome.reason in LASTING
        contentless = turned_away and outcome.reason in NO_CONTENT
        if target is None:
            if outcome.status not in ("applied", "resident"):
                return 0.0
            target = self._new(outcome.scope, outcome.target_key)
        unused = 0.0
        if outcome.command_id == target.command_id:
            answering = self._answering(target, outcome)
            if answering:
                target.waiting = tuple(name for name in target.waiting if name not in answering)
                unused = unused_of(outcome, target.charged * len(answering))
                if not (served or refused or contentless):
                    target.failed = True
            for name in answering:
                if (served or refused) and name not in (ANY_REPLICA, outcome.replica):
                    self._see(target, name, 0, outcome.finished_at_ms, outcome.finished_at_ms + stay_ms)
        if served or refused:
            gone = outcome.action in TAKEN_AWAY and (absent or outcome.status == "applied")
            until_ms = 0 if gone else outcome.finished_at_ms + stay_ms
            self._see(target, outcome.replica, mark, outcome.finished_at_ms, until_ms)
        if contentless:
            self._rest(target, outcome, stay_ms)
        elif outcome.status in ("applied", "resident"):
            target.refused_by, target.rest_ms, target.rests_until_ms = "", 0, 0
        self._write(target)
        return unused

    def on_residency(self, scope: str, key: str, replica: str, mark: int, seen_ms: int, until_ms: int) -> bool:
        """Takes an observation; `until_ms` 0 says that the target was lost. Says whether it was news."""
        target = self._targets.get((scope, key))
        if target is None:
            if until_ms == 0:
                return True
            target = self._new(scope, key)
        if not self._see(target, replica, mark, seen_ms, until_ms):
            return False
        self._write(target)
        return True

    def forget(self, at_ms: int) -> None:
        """Drops what no longer matters, and what is beyond the bound."""
        over = len(self._targets) - self._max_targets
        while self._due and (self._due[0][0] <= at_ms or over > 0):
            due_ms, scope, key = heapq.heappop(self._due)
            target = self._targets.get((scope, key))
            if target is None:
                continue
            if target.forget_ms > due_ms:
                self._queue(target)
                continue
            del self._targets[scope, key]
            self._store.remove(path(scope, key))
            over -= 1

    def restore(self, blob: bytes) -> None:
        """Takes back one target."""
        record = unpack(blob, TargetRecord)
        target = self._new(record.scope, record.key)
        target.command_id = record.command_id
        target.bucket, target.attempt = record.bucket, record.attempt
        target.issued_ms, target.expires_ms, target.keep_ms = record.issued_ms, record.expires_ms, record.keep_ms
        target.charged, target.waiting, target.failed = record.charged, record.waiting, record.failed
        target.stays = {stay.replica: stay for stay in record.stays}
        target.refused_by, target.rest_ms = record.refused_by, record.rest_ms
        target.rests_until_ms = record.rests_until_ms
        self._queue(target)

    @staticmethod
    def _answering(target: Target, outcome: WarmupOutcome) -> tuple[str, ...]:
        """Of the replicas that owe an outcome, those that this one speaks for."""
        if outcome.status in ("held_out", "shadow") or outcome.reason == OutcomeReason.NO_REPLICA:
            return target.waiting
        return tuple(name for name in target.waiting if name in (ANY_REPLICA, outcome.replica))

    def _rest(self, target: Target, outcome: WarmupOutcome, first_ms: int) -> None:
        """Once for a command, however many of its replicas say so."""
        if outcome.command_id == target.refused_by:
            return
        target.refused_by = outcome.command_id
        target.rest_ms = min(self._longest_rest_ms, 2 * target.rest_ms or first_ms)
        target.rests_until_ms = outcome.finished_at_ms + target.rest_ms

    @staticmethod
    def _see(target: Target, replica: str, mark: int, seen_ms: int, until_ms: int) -> bool:
        held = target.stays.get(replica)
        if held is not None and seen_ms < held.seen_ms:
            return False
        target.stays[replica] = Stay(1, replica, mark, seen_ms, until_ms)
        return True

    def _new(self, scope: str, key: str) -> Target:
        target = self._targets[scope, key] = Target(scope, key)
        return target

    def _write(self, target: Target) -> None:
        record = TargetRecord(
            1,
            target.scope,
            target.key,
            target.command_id,
            target.bucket,
            target.attempt,
            target.issued_ms,
            target.expires_ms,
            target.keep_ms,
            target.charged,
            target.waiting,
            target.failed,
            tuple(stay for _, stay in sorted(target.stays.items())),
            target.refused_by,
            target.rest_ms,
            target.rests_until_ms,
        )
        self._store.put(path(target.scope, target.key), pack(record))
        # An entry that stands too early is put right when its time comes.
        if not 0 < target.queued_ms <= target.forget_ms:
            self._queue(target)

    def _queue(self, target: Target) -> None:
        target.queued_ms = target.forget_ms
        heapq.heappush(self._due, (target.queued_ms, target.scope, target.key))
