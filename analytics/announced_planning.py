"""Announced changes: what to have ready before one takes effect, and what to stop when it does (DESIGN §3.4, D14).

An announcement is kept under its id, so that telling it twice is telling it once. Its commands go out on the fast lane
between its lead and its effect; what could not be paid or failed is tried again until shortly after, and a value is
fetched again after half of its life. From its effect on, a change of model, tokenizer or template ends what was
rendered with the old one (`endings`): such prefixes are not offered any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from analytics.commands import Draft
from analytics.copies import spread
from analytics.endings import ended_before
from analytics.envelopes import Root
from analytics.memory import TargetMemory
from analytics.plan_config import PlanConfig
from analytics.policy import PolicyBook, SchedulePolicy
from analytics.records import Record, Section, pack, path, unpack
from analytics.replicas import Ready
from analytics.strategies import Tiers, Wave, full_snapshot, hot_top_n, sampled, schedule_warmup
from analytics.worth import Worth
from schemas import Announcement, Model, Prefix, Segment, Target, Value, decode, encode
from schemas.canonical import bucket, model_key, prefix_key, value_key
from schemas.warmup_command import Action, Qos

TRIGGER = "announced"
LINGER_MS = 60_000
"""How long after its effect a change is still prepared, where that did not succeed before. Scaled."""

KEEP_MS = 86_400_000
"""How long an ended version is remembered after the change took effect. Scaled."""

_ENDING = frozenset({"model", "tokenizer", "template"})


class AnnouncedRecord(Record, frozen=True, array_like=True):
    """An announcement as it is kept: the message in the JSON of its topic."""

    message: bytes


class Wanted(NamedTuple):
    """One thing that an announcement asks for.

    Attributes:
        due_ms: event time from which it may be sent.
        in_flight: how many of its wave may be under way at a time; 0 for all.
    """

    due_ms: int
    key: str
    target: Target
    action: Action
    unit: str
    tokens: int
    in_flight: int


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
            self._hold(message)
            self._store.put(path(name), pack(AnnouncedRecord(1, encode(message))))
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

    def restore(self, blob: bytes) -> None:
        """Takes back one announcement."""
        self._hold(decode(unpack(blob, AnnouncedRecord).message, Announcement))

    def _hold(self, message: Announcement) -> None:
        self._held[message.announcement_id] = message
        if message.kind == "event":
            self._values[message.announcement_id] = frozenset(map(value_key, message.keys))

    def _drop(self, name: str) -> None:
        del self._held[name]
        self._values.pop(name, None)
        self._store.remove(path(name))

    def _ending(self) -> Iterator[Announcement]:
        return (message for message in self._held.values() if message.kind in _ENDING)

    def _due(self, message: Announcement, at_ms: int, ready: Ready, policy: PolicyBook) -> list[Draft]:
        until_ms = message.at_ms + self._config.scaled(LINGER_MS)
        if at_ms >= until_ms:
            return []
        drafts: list[Draft] = []
        flying: dict[int, int] = {}
        for wanted in self._wanted(message, ready, policy.schedule(message.scope)):
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
            asked = target.bucket == now
            if (asked and not target.failed_by(at_ms)) or target.rests_until_ms > at_ms:
                return None
            missing = () if self._redis else target.missing(ready, at_ms)
            attempt = target.next_attempt(now, at_ms)
        if isinstance(wanted.target, Model):
            # It concerns one replica: no other one will ever answer for it.
            missing = tuple(name for name in missing if name == wanted.target.replica)
        if not self._redis and not missing:
            return None
        budget = policy.budget()
        names = spread(missing, plan.copies, wanted.key)
        saved_ms = wanted.tokens / (budget.prefill_tokens_per_s * self._config.time_scale) * 1000
        qos: Qos = plan.qos  # type: ignore[assignment]
        return Draft(
            scope=message.scope,
            key=wanted.key,
            source=wanted.target,
            unit=wanted.unit,
            bucket=now,
            attempt=attempt,
            life_ms=max(self._config.min_life_ms, min(until_ms - at_ms, self._config.life_ms(plan.embedding_life_ms))),
            repeat_ms=repeat_ms,
            names=names,
            charge=float(max(1, wanted.tokens)),
            worth=Worth(
                p_asked=1.0, p_absent=1.0, saved_ms=saved_ms, cost=float(max(1, wanted.tokens) * max(1, len(names)))
            ),
            trigger=TRIGGER,
            qos=qos,
            tokens=wanted.tokens,
            evidence={"takes_effect_in_ms": float(message.at_ms - at_ms)},
            action=wanted.action,
            content_version=message.version,
            exempt=isinstance(wanted.target, Model) or message.strategy == "full_snapshot",
        )

    def _wanted(self, message: Announcement, ready: Ready, schedule: SchedulePolicy) -> Iterator[Wanted]:
        """Everything a message asks for, by due time."""
        if self._redis:
            if message.kind == "event" and message.loader:
                start_ms = message.at_ms - self._config.scaled(schedule.lead_ms)
                for wave in waves_of(message, schedule):
                    due_ms = start_ms + (self._config.scaled(wave.offset_ms) if wave.offset_ms else 0)
                    for key in wave.keys:
                        value = Value(key=key, loader=message.loader, ttl_ms=message.ttl_ms)
                        name = value_key(key)
                        yield Wanted(due_ms, name, value, "warm", name, 0, wave.in_flight)
            return
        due_ms = message.at_ms - self._config.scaled(schedule.prefix_lead_ms)
        served = message.name if message.kind == "model" and message.model is None else message.model
        if message.kind in ("model", "tokenizer") and served is not None:
            # A probe before the effect would warm the old model: it goes out when the new one answers.
            for replica in ready.names:
                model = Model(model=served, replica=replica)
                yield Wanted(message.at_ms, model_key(replica), model, "probe", model_key(replica), 1, 0)
        segments = _shared(message)
        if segments and message.model is not None:
            prefix = Prefix(model=message.model, segments=segments, render=message.render)
            last = segments[-1].hash
            yield Wanted(due_ms, prefix_key(last), prefix, "warm", segments[0].hash, prefix.tokens, 0)


def waves_of(message: Announcement, schedule: SchedulePolicy) -> tuple[Wave, ...]:
    """The waves in which an event's keys are fetched."""
    tiers = Tiers(schedule.first, schedule.top, schedule.in_flight, schedule.batch, schedule.pause_ms)
    if message.strategy == "full_snapshot":
        keys = full_snapshot(message.keys, {}, {}).keys
        return schedule_warmup(keys, Tiers(0, len(keys), schedule.in_flight, schedule.batch, schedule.pause_ms))
    if message.strategy == "sampled":
        return schedule_warmup(sampled(message.keys, schedule.sample_share, message.announcement_id).keys, tiers)
    return schedule_warmup(hot_top_n(message.keys, schedule.top).keys, tiers)


def _shared(message: Announcement) -> tuple[Segment, ...]:
    """The segments that every request of a prompt begins with: strategy `template` leaves a user's own words out."""
    if message.strategy != "template":
        return message.segments
    kept: list[Segment] = []
    for segment in message.segments:
        if segment.role == "user":
            break
        kept.append(segment)
    return tuple(kept)
