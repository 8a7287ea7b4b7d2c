"""ReplicaSample: the state of one engine replica, every second (topic llm.telemetry).

It is also the heartbeat of event time: it moves the watermark while requests are quiet.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from schemas.fields import Amount, Count, DurationMs, Id, Ms, Name, Share

ReplicaState = Literal["starting", "ready", "sleeping", "draining", "lost"]
AdapterLevel = Literal["gpu", "host", "named"]


class ResidentAdapter(Struct, frozen=True):
    """An adapter that the replica knows, and how near to the compute units it lies."""

    name: Id
    version: Name
    level: AdapterLevel


class ReplicaSample(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag="replica_sample/1"):
    """One look at one replica. Counters are cumulative within an incarnation, foreground and warm-up together.

    Attributes:
        zone: what fails together with it, as far as its executor was told: copies are spread over zones.
    """

    replica: Id
    pool: Id
    incarnation: Id
    sampled_at_ms: Ms
    state: ReplicaState
    running: Count = 0
    waiting: Count = 0
    kv_usage: Share = 0.0
    blocks_total: Count | None = None
    block_tokens: Annotated[int, Meta(ge=1, le=1 << 20)] = 16
    allocations_per_s: Amount | None = None
    prefix_query_tokens: Count = 0
    prefix_hit_tokens: Count = 0
    preemptions: Count = 0
    ttft_p50_ms: DurationMs | None = None
    ttft_p99_ms: DurationMs | None = None
    adapters: tuple[ResidentAdapter, ...] = ()
    free_bytes: Count | None = None
    estimated: bool = False
    zone: Name | None = None

    @property
    def event_time_ms(self) -> int:
        """When the replica was looked at."""
        return self.sampled_at_ms
