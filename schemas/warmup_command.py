"""WarmupCommand: one thing to make ready, where, until when, and why (topic warmup.commands)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from schemas.canonical import Arm
from schemas.fields import (
    MAX_SEGMENTS,
    Alpha,
    Amount,
    Count,
    Dropout,
    Hash,
    Id,
    Label,
    Ms,
    Name,
    Rank,
    Share,
    TargetModules,
    Tokens,
)
from schemas.request_event import Render, Segment

Action = Literal["warm", "load", "pin", "unload", "touch", "probe", "wake", "invalidate", "cancel", "repair"]
Qos = Literal["guaranteed", "burstable", "best_effort"]
QOS_RANK: dict[str, int] = {"guaranteed": 0, "burstable": 1, "best_effort": 2}
"""Classes in the order in which they are served; the last is the first to be turned away."""

MAX_CANCELLED = 1_024
"""Commands that one Cancel takes back at the most."""

Lane = Literal["fast", "tick"]
SegmentKind = Literal["message", "token_block"]


class Prefix(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="prefix"):
    """A KV prefix: its segments from the root on, and what renders them.

    Attributes:
        segments: oldest first; the last one names the prefix.
        segment_kind: `message` is warmed as a chat of those messages, `token_block` by its ids.
    """

    model: Id
    adapter: Id | None = None
    segments: Annotated[tuple[Segment, ...], Meta(min_length=1, max_length=MAX_SEGMENTS)]
    render: Render = Render()
    segment_kind: SegmentKind = "message"

    @property
    def tokens(self) -> int:
        """Length of the prefix in tokens."""
        return sum(segment.tokens for segment in self.segments)


class Embedding(Struct, frozen=True, kw_only=True, tag_field="kind", tag="embedding"):
    """The embedding of one query by one encoder. Vector and text wait in Redis under their own keys."""

    fingerprint: Hash
    query_sha256: Hash


class Adapter(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="adapter"):
    """A LoRA adapter in one exact version. Actions: load, pin, unload.

    Attributes:
        source: where the replica reads it: a path or an id that the engine resolves.
        rank, alpha, dropout, target_modules: its structure, as far as the announcement told it.
        sha256: digest of the weights. What was announced the executor compares before it loads.
    """

    name: Id
    version: Name
    rank: Rank | None = None
    alpha: Alpha | None = None
    dropout: Dropout | None = None
    target_modules: TargetModules = ()
    sha256: Id | None = None
    source: Id | None = None


class Response(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="response"):
    """An answer for the scope's semantic cache. Actions: warm, invalidate.

    Attributes:
        cache: name of the semantic cache within the scope.
        fingerprint: encoder of the query's vector.
        response_ref: hash of the answer's text among the scope's blobs; None asks for it to be generated. Then the
            command goes to the pool of engines that is to do it, and tells the `prompt`.
        prompt: of an answer to be generated, all messages with the query as the last.
        params_hash: h128 of the sampling parameters that the answer was made with.
        semantic_version: version of the facts behind the answer.
        until_ms: absolute end of the entry, in wall time.
    """

    cache: Name
    fingerprint: Hash
    query_sha256: Hash
    response_ref: Hash | None = None
    prompt: Prefix | None = None
    model: Id
    template_version: Label = ""
    params_hash: Label = ""
    semantic_version: Label = ""
    reward: Share = 1.0
    until_ms: Ms


class Value(Struct, frozen=True, kw_only=True, tag_field="kind", tag="value"):
    """A business value: `loader` (configured at the executor) fetches it, Redis holds it for `ttl_ms`."""

    key: Id
    loader: Name
    ttl_ms: Annotated[int, Meta(ge=1000, le=86_400_000)]


class Model(Struct, frozen=True, kw_only=True, tag_field="kind", tag="model"):
    """A model on one replica. Actions: probe (one token after readiness), load, wake."""

    model: Id
    replica: Id


class Cancel(Struct, frozen=True, kw_only=True, tag_field="kind", tag="cancel"):
    """Commands to take back: what is queued is dropped, what runs is closed."""

    command_ids: Annotated[tuple[Hash, ...], Meta(min_length=1, max_length=MAX_CANCELLED)]


Target = Prefix | Embedding | Adapter | Response | Value | Model | Cancel


class Replicas(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """On how many replicas of the pool, and on which: `names` where the planner chose, else the executor does."""

    min: Annotated[int, Meta(ge=0, le=10_000)] = 1
    max: Annotated[int, Meta(ge=1, le=10_000)] = 1
    names: tuple[Id, ...] | None = None
    spread_by: Name | None = None


class Cost(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What applying it is expected to cost on one replica."""

    bytes: Count = 0
    tokens: Tokens = 0
    seconds: Amount = 0.0


class Benefit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What it is expected to bring: probabilities within the horizon, milliseconds saved a hit, reward factor."""

    p_asked: Share = 0.0
    p_absent: Share = 1.0
    saved_ms: Amount = 0.0
    reward: Amount = 1.0


class Reason(Struct, frozen=True, kw_only=True):
    """Which rule spoke, and the figures that it saw, by name."""

    trigger: Name
    evidence: dict[str, float] = {}


class WarmupCommand(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag="warmup_command/1"):
    """A command to the executors of a pool. Idempotent by `command_id` (see `schemas.canonical.command_id`).

    A held-out unit's command is sent too, with arm `hold`, and so is a shadow one: both are recorded, not applied.
    """

    command_id: Hash
    scope: Id
    tenant: Id
    pool: Id
    target: Target
    target_key: Id
    action: Action = "warm"
    content_version: Name = "1"
    replicas: Replicas = Replicas()
    priority: Annotated[int, Meta(ge=0, le=999)]
    qos: Qos = "burstable"
    lane: Lane
    issued_at_ms: Ms
    not_before_ms: Ms
    expires_at_ms: Ms
    after: tuple[Hash, ...] = ()
    supersedes: Hash | None = None
    cost: Cost = Cost()
    benefit: Benefit = Benefit()
    reason: Reason
    policy_version: Count = 0
    unit: Id
    arm: Arm = "warm"
    propensity: Share = 1.0
    shadow: bool = False
    traceparent: Label | None = None

    @property
    def event_time_ms(self) -> int:
        """When the planner decided."""
        return self.issued_at_ms
