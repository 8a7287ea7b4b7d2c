"""Announced changes: what to have ready before one takes effect, and what to stop when it does (DESIGN §3.4, D14).

An announcement is kept under its id, so that telling it twice is telling it once. Its commands go out on the fast lane
between its lead and its effect; what could not be paid or failed is tried again until shortly after, and a value is
fetched again after half of its life. From its effect on, a change of model, tokenizer or template ends what was
rendered with the old one (`endings`): such prefixes are not offered any more.
"""

from __future__ import annotations

from collections.abc import Iterator

from analytics.announced_drafts import cancelling, preparing
from analytics.commands import Draft
from analytics.copies import spread
from analytics.endings import ended_before
from analytics.envelopes import Root
from analytics.memory import TargetMemory
from analytics.plan_config import PlanConfig
from analytics.policy import PolicyBook
from analytics.records import Record, Section, pack, path, unpack
from analytics.replicas import Ready
from analytics.targets import Target
from analytics.wanted import Wanted, wanted_of
from schemas import Announcement, Model, decode, encode
from schemas.canonical import bucket, command_id, value_key
from schemas.warmup_command import MAX_CANCELLED, Action

LINGER_MS = 60_000
"""How long after its effect a change is still prepared, where that did not succeed before. Scaled."""

KEEP_MS = 86_400_000
"""How long an ended version is remembered after the change took effect. Scaled."""

_ENDING = frozenset({"model", "tokenizer", "template"})


class AnnouncedRecord(Record, frozen=True, array_like=True):
    """An announcement as it is kept: the message in the JSON of its topic.

    Attributes:
        fetched: of a full snapshot, keys that an earlier one has fetched and that last beyond this one.
    """

    message: bytes
    fetched: tuple[str, ...] = ()


class AnnouncedPlanner:
    """Announcements of every scope that concern one pool.

    Args:
        redis: whether the pool is a Redis: it prepares values, a GPU pool everything else.
    """

    def __init__(self, config: PlanConfig, memory: TargetMemory, redis: bool, store: Section) -> None:
        self._config = config
        self._memory = memory
        self._redis = redis
        self._store = store
        self._held: dict[str, Announcement] = {}
        self._values: dict[str, frozenset[str]] = {}
        self._fetched: dict[str, tuple[str, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    @property
    def scopes(self) -> frozenset[str]:
        """Scopes that have announced something."""
        return frozenset(message.scope for message in self._held.values())

    def on_announcement(self, message: Announcement) -> bool:
        """Takes an announcement, or takes one back; says whether that was news."""
        name = message.announcement_id
        if (name in self._held) != message.deleted:
            return False
        if message.deleted:
            self._drop(name)
        else:
            fetched = self._fetched_before(message)
            self._hold(message, fetched)
            self._store.put(path(name), pack(AnnouncedRecord(1, encode(message), fetched)))
        return True

    def forget(self, at_ms: int) -> None:
        """Drops what is over."""
        for name, message in list(self._held.items()):
            keep_ms = KEEP_MS if message.kind in _ENDING else LINGER_MS
            if at_ms > message.at_ms + self._config.scaled(keep_ms):
                self._drop(name)

    def ended_before(self, scope: str, root: Root, at_ms: int) -> int:
        """What was asked for with a root before which event time a change has ended; 0 where none has."""
        changes = (message for message in self._ending() if message.scope == scope and message.at_ms <= at_ms)
        return ended_before(changes, root.model, root.template_sha)

    def replaced(self, at_ms: int) -> list[Announcement]:
        """Changes in effect that end answers of an older model, tokenizer or template, the oldest first."""
        found = [message for message in self._ending() if message.at_ms <= at_ms]
        return sorted(found, key=lambda message: (message.at_ms, message.announcement_id))

    def ttl_ms(self, scope: str, target_key: str) -> int:
        """How long a value of an announced event lives; 0 for every other target."""
        told = (self._held[name] for name, keys in self._values.items() if target_key in keys)
        return max((message.ttl_ms for message in told if message.scope == scope), default=0)

    def drafts(self, at_ms: int, ready: Ready, policy: PolicyBook) -> list[Draft]:
        """What may go out now, the earliest effect and the most wanted key first."""
        found: list[Draft] = []
        for message in sorted(self._held.values(), key=lambda message: (message.at_ms, message.announcement_id)):
            if policy.frozen(message.scope):
                continue
            found += self._due(message, at_ms, ready, policy)
        return found

    def withdrawal(self, message: Announcement, at_ms: int, ready: Ready, policy: PolicyBook) -> list[Draft]:
        """Takes back what is under way for an announcement that is taken back itself; to be asked before it is.

        What another announcement wants by now as well goes on.
        """
        held = self._held.get(message.announcement_id)
        if held is None:
            return []
        others = [other for other in self._held.values() if other.scope == held.scope and other is not held]
        shared = {each.key for other in others for each in self._by_now(other, at_ms, ready, policy)}
        sent = [
            target
            for each in self._by_now(held, at_ms, ready, policy)
            if each.key not in shared and (target := self._under_way(held, each)) is not None
        ]
        return [
            cancelling(self._config, policy.plan(held.scope), held, sent[start : start + MAX_CANCELLED], at_ms)
            for start in range(0, len(sent), MAX_CANCELLED)
        ]

    def restore(self, blob: bytes) -> None:
        """Takes back one announcement."""
        record = unpack(blob, AnnouncedRecord)
        self._hold(decode(record.message, Announcement), record.fetched)

    def _hold(self, message: Announcement, fetched: tuple[str, ...]) -> None:
        self._held[message.announcement_id] = message
        if fetched:
            self._fetched[message.announcement_id] = fetched
        if message.kind == "event":
            self._values[message.announcement_id] = frozenset(map(value_key, message.keys))

    def _drop(self, name: str) -> None:
        del self._held[name]
        self._values.pop(name, None)
        self._fetched.pop(name, None)
        self._store.remove(path(name))

    def _ending(self) -> Iterator[Announcement]:
        return (message for message in self._held.values() if message.kind in _ENDING)

    def _due(self, message: Announcement, at_ms: int, ready: Ready, policy: PolicyBook) -> list[Draft]:
        until_ms = message.at_ms + self._config.scaled(LINGER_MS)
        if at_ms >= until_ms:
            return []
        drafts: list[Draft] = []
        flying: dict[int, int] = {}
        for wanted in self._wanted(message, ready, policy):
            if wanted.due_ms > at_ms:
                break
            target = self._memory.get(message.scope, wanted.key)
            live = target is not None and target.live(at_ms)
            if live:
                flying[wanted.due_ms] = flying.get(wanted.due_ms, 0) + 1
                continue
            if wanted.in_flight and flying.get(wanted.due_ms, 0) >= wanted.in_flight:
                continue
            draft = self._draft(message, wanted, at_ms, until_ms, ready, policy)
            if draft is not None:
                flying[wanted.due_ms] = flying.get(wanted.due_ms, 0) + 1
                drafts.append(draft)
        return drafts

    def _draft(
        self, message: Announcement, wanted: Wanted, at_ms: int, until_ms: int, ready: Ready, policy: PolicyBook
    ) -> Draft | None:
        plan = policy.plan(message.scope)
        repeat_ms = self._config.scaled(message.ttl_ms / 2 if self._redis else plan.prefix_repeat_ms)
        target, now = self._memory.get(message.scope, wanted.key), bucket(at_ms, repeat_ms)
        attempt, missing = 1, () if self._redis else ready.names
        if target is not None:
            # A value of an older version is fetched anew; what was sent since this one was told is not sent for again.
            older = self._redis and target.issued_ms < message.announced_at_ms
            asked = target.bucket == now and not (older and not self._sent(message, target, wanted.action))
            if (asked and not target.failed_by(at_ms)) or target.rests_until_ms > at_ms:
                return None
            missing = () if self._redis else target.missing(ready, at_ms)
            attempt = target.next_attempt(now, at_ms)
        if isinstance(wanted.target, Model):
            # It concerns one replica: no other one will ever answer for it.
            replica = wanted.target.replica
            missing = (replica,) if wanted.action == "wake" else tuple(name for name in missing if name == replica)
        if not self._redis and not missing:
            return None
        life_ms = max(self._config.min_life_ms, min(until_ms - at_ms, self._config.life_ms(plan.embedding_life_ms)))
        names = spread(missing, plan.copies, wanted.key, ready.zone_of, ready.but(missing))
        prefill_per_s = policy.budget().prefill_tokens_per_s * self._config.time_scale
        return preparing(
            message, wanted, at_ms, plan, now, attempt, life_ms, repeat_ms, names, wanted.tokens / prefill_per_s * 1000
        )

    def _by_now(self, message: Announcement, at_ms: int, ready: Ready, policy: PolicyBook) -> Iterator[Wanted]:
        return (each for each in self._wanted(message, ready, policy) if each.due_ms <= at_ms)

    def _under_way(self, message: Announcement, wanted: Wanted) -> Target | None:
        """A target whose last command is one that the announcement sent, and not demand, and is not answered yet.

        One that has expired meanwhile may have been begun before: it is taken back too.
        """
        target = self._memory.get(message.scope, wanted.key)
        if target is None or not target.waiting or not self._sent(message, target, wanted.action):
            return None
        return target

    def _wanted(self, message: Announcement, ready: Ready, policy: PolicyBook) -> Iterator[Wanted]:
        fetched = self._fetched.get(message.announcement_id, ())
        return wanted_of(message, self._redis, ready, policy.schedule(message.scope), self._config, fetched)

    def _fetched_before(self, message: Announcement) -> tuple[str, ...]:
        """Keys of a full snapshot whose value of the same version is there, and stays until the snapshot is over.

        Found once, so that what this snapshot fetches itself does not change its waves.
        """
        if not self._redis or message.strategy != "full_snapshot":
            return ()
        until_ms = message.at_ms + self._config.scaled(LINGER_MS)
        found = []
        for key in message.keys:
            target = self._memory.get(message.scope, value_key(key))
            lasts = target is not None and any(stay.until_ms >= until_ms for stay in target.stays.values())
            if target is not None and lasts and self._sent(message, target, "warm"):
                found.append(key)
        return tuple(found)

    @staticmethod
    def _sent(message: Announcement, target: Target, action: Action) -> bool:
        """Whether a target's last command is one for this version, as an announcement sends it."""
        named = (message.scope, message.pool, target.key, action, message.version)
        return target.command_id == command_id(*named, target.bucket, target.attempt)
