"""The topics of Stoker: names, keys, partitions and how long records live (DESIGN §3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MAX_RECORD_BYTES = 1 << 20
"""Largest record that a reader accepts; a larger one is a dead letter."""
MAX_MESSAGE_BYTES = 2 << 20
"""`max.message.bytes` of every topic: above MAX_RECORD_BYTES, so that oversized records can be dead-lettered."""
MAX_TIMESTAMP_AHEAD_MS = 30_000
"""`message.timestamp.after.max.ms` of every topic. A record beyond it fails its whole batch: producers clamp."""


@dataclass(frozen=True)
class Topic:
    """One topic.

    Attributes:
        name: without prefix.
        key: what its records are keyed by, for people.
        retention_ms: how long records are kept; None for a compacted topic.
        partitions: in production; `partitions_local` on the embedded stack.
        max_ahead_ms: how far ahead of the broker's clock a record's time may be.
    """

    name: str
    key: str
    retention_ms: int | None
    partitions: int = 12
    partitions_local: int = 4
    max_message_bytes: int = MAX_MESSAGE_BYTES
    max_ahead_ms: int = MAX_TIMESTAMP_AHEAD_MS

    @property
    def compacted(self) -> bool:
        """Whether the broker keeps the last record of every key instead of a span of time."""
        return self.retention_ms is None

    def config(self) -> dict[str, str]:
        """The broker-side settings of this topic, by their Kafka names."""
        common = {
            "max.message.bytes": str(self.max_message_bytes),
            "message.timestamp.after.max.ms": str(self.max_ahead_ms),
        }
        if self.retention_ms is None:
            return {"cleanup.policy": "compact", **common}
        return {"cleanup.policy": "delete", "retention.ms": str(self.retention_ms), **common}


REQUESTS = Topic("llm.requests", "session, else event_id", 48 * HOUR_MS)
REWARDS = Topic("llm.rewards", "query_sha256", 48 * HOUR_MS)
TELEMETRY = Topic("llm.telemetry", "replica", 6 * HOUR_MS)
SPANS = Topic("llm.spans", "trace id", 24 * HOUR_MS)
ANNOUNCEMENTS = Topic("warmup.announcements", "scope", 14 * DAY_MS)
COMMANDS = Topic("warmup.commands", "pool + target key", 6 * HOUR_MS)
OUTCOMES = Topic("warmup.outcomes", "pool + target key", 14 * DAY_MS)
RESIDENCY = Topic("warmup.residency", "replica + target key", None)
POLICY = Topic("warmup.policy", "scope / section / writer", None)
INSIGHTS = Topic("warmup.insights", "scope", 14 * DAY_MS)
FORECASTS = Topic("warmup.forecasts", "scope", 48 * HOUR_MS)
DEAD_LETTERS = Topic("warmup.dlq", "reason", 24 * HOUR_MS)

TOPICS: tuple[Topic, ...] = (
    REQUESTS,
    REWARDS,
    TELEMETRY,
    SPANS,
    ANNOUNCEMENTS,
    COMMANDS,
    OUTCOMES,
    RESIDENCY,
    POLICY,
    INSIGHTS,
    FORECASTS,
    DEAD_LETTERS,
)


def at_time_scale(topics: Iterable[Topic], time_scale: float) -> tuple[Topic, ...]:
    """These topics for a job whose event time runs so many times faster.

    A stamp ahead moves event time for everybody. How late an event may be shrinks with the time scale; how far ahead a
    stamp may be must shrink as well, or one producer's clock makes the events of all others late.
    """
    return tuple(replace(topic, max_ahead_ms=round(topic.max_ahead_ms / time_scale)) for topic in topics)


def topic_name(topic: Topic, prefix: str = "") -> str:
    """The name on the broker: `prefix` is put before it as it is (`staging.` gives `staging.llm.requests`)."""
    return prefix + topic.name
