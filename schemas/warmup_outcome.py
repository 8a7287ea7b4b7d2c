"""WarmupOutcome: how a command ended on one replica (topic warmup.outcomes)."""

from __future__ import annotations

import enum
from typing import Literal

from msgspec import Struct

from schemas.canonical import Arm
from schemas.fields import Count, DurationMs, Hash, Id, Label, Ms, Tokens
from schemas.warmup_command import Action

Status = Literal["applied", "resident", "skipped", "expired", "rejected", "failed", "held_out", "shadow", "cancelled"]


class OutcomeReason(enum.StrEnum):
    """Why a command ended as it did. `docs/executor.md` says of each what an operator can do."""

    DONE = "done"
    ALREADY_RESIDENT = "already_resident"
    BELOW_BLOCK = "below_block"
    TEXT_WITHHELD = "text_withheld"
    CONTENT_MISSING = "content_missing"
    CONTENT_MISMATCH = "content_mismatch"
    VECTOR_MISSING = "vector_missing"
    ADAPTER_MISSING = "adapter_missing"
    ADAPTER_IN_USE = "adapter_in_use"
    DIGEST_MISMATCH = "digest_mismatch"
    RANK_MISMATCH = "rank_mismatch"
    STRUCTURE_MISMATCH = "structure_mismatch"
    ANSWER_MISSING = "answer_missing"
    ANSWER_INCOMPLETE = "answer_incomplete"
    BELOW_REWARD_FLOOR = "below_reward_floor"
    EXPIRED_CONTENT = "expired_content"
    REVOKED = "revoked"
    ALREADY_ABSENT = "already_absent"
    INDEX_MISMATCH = "index_mismatch"
    VALUE_MISSING = "value_missing"
    LOADER_UNKNOWN = "loader_unknown"
    LOADER_FAILED = "loader_failed"
    LOADER_UNAVAILABLE = "loader_unavailable"
    UNVERIFIED = "unverified"
    EXPIRED_QUEUED = "expired_queued"
    EXPIRED_ON_ARRIVAL = "expired_on_arrival"
    QUEUE_FULL = "queue_full"
    QUOTA = "quota"
    FROZEN = "frozen"
    NO_REPLICA = "no_replica"
    NEEDED_MISSING = "needed_missing"
    BREAKER_OPEN = "breaker_open"
    ENGINE_REFUSED = "engine_refused"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    ENGINE_SLEEPING = "engine_sleeping"
    STORE_UNAVAILABLE = "store_unavailable"
    SALT_MISMATCH = "salt_mismatch"
    UNSUPPORTED = "unsupported"
    HELD_OUT = "held_out"
    SHADOW = "shadow"
    CANCELLED = "cancelled"


class WarmupOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag="warmup_outcome/1"):
    """The one terminal outcome of a command on a replica; a repetition overwrites it by `outcome_id`.

    `applied` is never replaced by `resident`: a second look at one's own work is no second warm-up.

    Attributes:
        action: of the command: after an applied `unload` or `invalidate` the target is gone, not there.
    """

    outcome_id: Hash
    command_id: Hash
    target_key: Id
    action: Action = "warm"
    scope: Id
    pool: Id
    replica: Id
    unit: Id
    arm: Arm = "warm"
    status: Status
    reason: OutcomeReason
    finished_at_ms: Ms
    queued_ms: DurationMs = 0.0
    apply_ms: DurationMs = 0.0
    tokens_warmed: Tokens = 0
    tokens_already_resident: Tokens = 0
    bytes: Count = 0
    error: Label | None = None

    @property
    def event_time_ms(self) -> int:
        """When the executor was done with it."""
        return self.finished_at_ms
