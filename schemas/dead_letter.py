"""DeadLetter: a record that could not be read (topic warmup.dlq)."""

from __future__ import annotations

from msgspec import Struct

from schemas.canonical import dead_id
from schemas.errors import DeadReason, PoisonMessage
from schemas.fields import MAX_STRING_CHARS, Count, Hash, Id, Label, Ms, Name


class DeadLetter(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag="dead_letter/1"):
    """What was wrong with which record. `payload` (base64) is there only where the policy allows it: it may hold text.

    Attributes:
        at_ms: record time of the bad record, or when it was read where that is unknown.
        path: JSON path of the offending field.
    """

    dead_id: Hash
    at_ms: Ms
    source_topic: Name
    partition: Count | None = None
    offset: Count | None = None
    reason: DeadReason
    path: Label = "$"
    detail: Label = ""
    size: Count
    payload: bytes | None = None
    event_id: Id | None = None

    @property
    def event_time_ms(self) -> int:
        """Record time of the bad record."""
        return self.at_ms


def letter_of(
    topic: str,
    record: bytes,
    at_ms: int,
    poison: PoisonMessage,
    *,
    partition: int | None = None,
    offset: int | None = None,
    payload: bytes | None = None,
    event_id: str | None = None,
) -> DeadLetter:
    """The letter of a bad record; its id comes from topic, bytes and time.

    Args:
        topic: its full name on the broker.
        at_ms: record time, at least 0.
        payload: the record itself, where it may be kept.
    """
    return DeadLetter(
        dead_id=dead_id(topic, record, at_ms),
        at_ms=at_ms,
        source_topic=topic,
        partition=partition,
        offset=offset,
        reason=poison.reason,
        path=poison.path[:MAX_STRING_CHARS],
        detail=poison.detail[:MAX_STRING_CHARS],
        size=len(record),
        payload=payload,
        event_id=event_id,
    )
