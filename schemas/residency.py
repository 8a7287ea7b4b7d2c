"""Residency: what is in which replica's cache (compacted topic warmup.residency); also a router's bootstrap."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from schemas.fields import Count, Id, Ms, Tokens

ResidencySource = Literal["events", "probe", "applied"]


class Residency(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag="residency/1"):
    """State of one target on one replica. `resident_tokens` 0 means it was lost; `deleted` precedes the tombstone.

    `full_tokens` is what this replica holds of the target when it holds all of it: its full blocks. A prefix loses its
    tail first and shares its head with others, so a loss mostly shows as fewer tokens, seldom as none.

    `seq` grows with every statement of the lease-holder about this replica; a reader keeps the greatest of the newest
    incarnation.
    """

    replica: Id
    pool: Id
    incarnation: Id
    scope: Id
    target_key: Id
    resident_tokens: Tokens | None = None
    full_tokens: Tokens | None = None
    bytes: Count | None = None
    seq: Count
    observed_at_ms: Ms
    source: ResidencySource
    deleted: bool = False

    @property
    def event_time_ms(self) -> int:
        """When the state was observed."""
        return self.observed_at_ms
