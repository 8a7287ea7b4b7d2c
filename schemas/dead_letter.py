"""DeadLetter: a record that could not be read (topic warmup.dlq)."""

from __future__ import annotations

from msgspec import Struct

from schemas.errors import DeadReason
from schemas.fields import Count, Hash, Id, Label, Ms, Name


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
