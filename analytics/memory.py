"""What a pool's planner remembers of its targets, until they no longer matter."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

from analytics.records import Section, pack, path, unpack
from analytics.scope_rests import ScopeRests
from analytics.statements import TAKEN_AWAY, unused_of, verdict_of
from analytics.targets import ANY_REPLICA, Target, TargetRecord
from schemas.warmup_outcome import OutcomeReason, WarmupOutcome


class TargetMemory:
    """Targets by scope and key, forgotten when they no longer matter; bounded.

    Args:
        max_targets: beyond it those are forgotten first that would be forgotten next anyway.
        longest_rest_ms: of a target without content.

    Attributes:
        rests: scopes none of whose prefixes has content.
    """

    def __init__(self, max_targets: int, store: Section, rests: ScopeRests, longest_rest_ms: int) -> None:
        self.rests = rests
        self._max_targets = max_targets
        self._longest_rest_ms = longest_rest_ms
        self._store = store
        self._targets: dict[tuple[str, str], Target] = {}
        self._due: list[tuple[int, str, str]] = []
        self._changed: Callable[[str, str], None] | None = None

    def __len__(self) -> int:
        return len(self._targets)

    def __iter__(self) -> Iterator[Target]:
        return iter(self._targets.values())

    def get(self, scope: str, key: str) -> Target | None:
        """The memory of a target."""
        return self._targets.get((scope, key))

    def watch(self, changed: Callable[[str, str], None]) -> None:
        """Tells from now on the scope and key of each target of which something else is remembered than before.

        What is dropped because it no longer matters is not told.
        """
        self._changed = changed

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
        self.rests.on_outcome(outcome, stay_ms)
        target = self._targets.get((outcome.scope, outcome.target_key))
        verdict = verdict_of(outcome)
        lasting = verdict.served or verdict.refused
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
                if not (lasting or verdict.contentless):
                    target.failed = True
            for name in answering:
                if lasting and name not in (ANY_REPLICA, outcome.replica):
                    target.see(name, 0, outcome.finished_at_ms, outcome.finished_at_ms + stay_ms)
        if lasting:
            gone = outcome.action in TAKEN_AWAY and (verdict.absent or outcome.status == "applied")
            until_ms = 0 if gone else outcome.finished_at_ms + stay_ms
            target.see(outcome.replica, mark, outcome.finished_at_ms, until_ms)
        if verdict.contentless:
            target.rest(outcome.command_id, outcome.finished_at_ms, stay_ms, self._longest_rest_ms)
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
        if not target.see(replica, mark, seen_ms, until_ms):
            return False
        self._write(target)
        return True

    def forget(self, at_ms: int) -> None:
        """Drops what no longer matters, and what is beyond the bound."""
        self.rests.forget(at_ms)
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
            if due_ms > at_ms and self._changed is not None:
                self._changed(scope, key)

    def restore(self, blob: bytes) -> None:
        """Takes back one target."""
        target = Target.of(unpack(blob, TargetRecord))
        self._targets[target.scope, target.key] = target
        self._queue(target)

    @staticmethod
    def _answering(target: Target, outcome: WarmupOutcome) -> tuple[str, ...]:
        """Of the replicas that owe an outcome, those that this one speaks for.

        An executor that knows no replica of the pool says so in the pool's name, for all of them; one that misses some
        says it of each of these. A replica may be called as its pool is: then it speaks for itself.
        """
        if outcome.status in ("held_out", "shadow"):
            return target.waiting
        own = tuple(name for name in target.waiting if name in (ANY_REPLICA, outcome.replica))
        if not own and outcome.reason is OutcomeReason.NO_REPLICA and outcome.replica == outcome.pool:
            return target.waiting
        return own

    def _new(self, scope: str, key: str) -> Target:
        target = self._targets[scope, key] = Target(scope, key)
        return target

    def _write(self, target: Target) -> None:
        self._store.put(path(target.scope, target.key), pack(target.record()))
        if self._changed is not None:
            self._changed(target.scope, target.key)
        # An entry that stands too early is put right when its time comes.
        if not 0 < target.queued_ms <= target.forget_ms:
            self._queue(target)

    def _queue(self, target: Target) -> None:
        target.queued_ms = target.forget_ms
        heapq.heappush(self._due, (target.queued_ms, target.scope, target.key))
