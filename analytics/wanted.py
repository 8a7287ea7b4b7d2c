"""What an announcement asks for: targets, and from when on each may be sent (D14)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from analytics.plan_config import PlanConfig
from analytics.policy import SchedulePolicy
from analytics.replicas import Ready
from analytics.strategies import Selection, Tiers, Wave, full_snapshot, hot_top_n, sampled, schedule_warmup
from schemas import Announcement, Model, Prefix, Segment, Target, Value
from schemas.canonical import model_key, prefix_key, value_key
from schemas.warmup_command import Action


class Wanted(NamedTuple):
    """One thing that an announcement asks for.

    Attributes:
        due_ms: event time from which it may be sent.
        in_flight: how many of its wave may be under way at a time; 0 for all.
        evidence: figures of the strategy that chose it.
    """

    due_ms: int
    key: str
    target: Target
    action: Action
    unit: str
    tokens: int
    in_flight: int
    evidence: tuple[tuple[str, float], ...] = ()


def wanted_of(
    message: Announcement,
    redis: bool,
    ready: Ready,
    schedule: SchedulePolicy,
    config: PlanConfig,
    fetched: Collection[str] = (),
) -> Iterator[Wanted]:
    """Everything a message asks for, by due time.

    Args:
        redis: whether for a Redis pool: values; a GPU pool gets everything else.
        fetched: keys that an earlier snapshot has fetched in this version.
    """
    if redis:
        if message.kind == "event" and message.loader:
            yield from _values(message, schedule, config, fetched)
        return
    if message.kind in ("model", "tokenizer"):
        yield from _models(message, ready)
    segments = _shared(message)
    if segments and message.model is not None:
        prefix = Prefix(model=message.model, segments=segments, render=message.render)
        due_ms = message.at_ms - config.scaled(schedule.prefix_lead_ms)
        yield Wanted(due_ms, prefix_key(segments[-1].hash), prefix, "warm", segments[0].hash, prefix.tokens, 0)


def selection_of(message: Announcement, schedule: SchedulePolicy, fetched: Collection[str]) -> Selection:
    """The keys of an event that its strategy takes; of a snapshot what the last one has not fetched."""
    if message.strategy == "full_snapshot":
        versions = dict.fromkeys(message.keys, message.version)
        return full_snapshot(message.keys, dict.fromkeys(fetched, message.version), versions)
    if message.strategy == "sampled":
        return sampled(message.keys, schedule.sample_share, message.announcement_id)
    return hot_top_n(message.keys, schedule.top)


def waves_of(message: Announcement, keys: tuple[str, ...], schedule: SchedulePolicy) -> tuple[Wave, ...]:
    """The waves in which an event's keys are fetched; of a snapshot all come in batches."""
    whole = message.strategy == "full_snapshot"
    first, top = (0, len(keys)) if whole else (schedule.first, schedule.top)
    return schedule_warmup(keys, Tiers(first, top, schedule.in_flight, schedule.batch, schedule.pause_ms))


def _values(
    message: Announcement, schedule: SchedulePolicy, config: PlanConfig, fetched: Collection[str]
) -> Iterator[Wanted]:
    start_ms = message.at_ms - config.scaled(schedule.lead_ms)
    chosen = selection_of(message, schedule, fetched)
    evidence = (("coverage", chosen.coverage), ("cost", float(chosen.cost)))
    for wave in waves_of(message, chosen.keys, schedule):
        due_ms = start_ms + (config.scaled(wave.offset_ms) if wave.offset_ms else 0)
        for key in wave.keys:
            value = Value(key=key, loader=message.loader, ttl_ms=message.ttl_ms)
            name = value_key(key)
            yield Wanted(due_ms, name, value, "warm", name, 0, wave.in_flight, evidence)


def _models(message: Announcement, ready: Ready) -> Iterator[Wanted]:
    """A probe before the effect would warm the old model: it goes out when the new one answers.

    Waking probes too. Who put a replica to sleep had a reason: only strategy `full_model` wakes it.
    """
    name = message.model or (message.name if message.kind == "model" else None)
    if name is None:
        return
    for replica in ready.names:
        key = model_key(replica)
        yield Wanted(message.at_ms, key, Model(model=name, replica=replica), "probe", key, 1, 0)
    for replica in ready.sleeping if message.strategy == "full_model" else ():
        key = model_key(replica)
        yield Wanted(message.at_ms, key, Model(model=name, replica=replica), "wake", key, 0, 0)


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
