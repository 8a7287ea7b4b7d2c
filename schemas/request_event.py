"""RequestEvent: what a gateway tells about one phase of one request (topic llm.requests).

Frozen structs of plain values can be in no cycle: without room for the garbage collector a segment is quicker to make.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from schemas.fields import MAX_SEGMENTS, DurationMs, Hash, Id, Label, Ms, Name, Text, Tokens

Phase = Literal["started", "finished"]
Origin = Literal["user", "warmup", "probe", "eval", "batch"]
Api = Literal["chat", "completion", "embedding"]
Modality = Literal["text", "image", "audio", "structured"]
Role = Literal["system", "user", "assistant", "tool", "developer", "block"]
FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "error", "cancelled"]


class Segment(Struct, frozen=True, gc=False, omit_defaults=True):
    """One piece of the prompt, oldest first.

    Attributes:
        hash: chained over the predecessors, see `schemas.canonical.segment_hash`.
        tokens: token count of this segment alone.
        role: of a message, or `block` for a token block.
        content_ref: key of the text in Redis; by default `stoker:{scope}:blob:{hash}`.
    """

    hash: Hash
    tokens: Tokens
    role: Role = "user"
    content_ref: Id | None = None


class Render(Struct, frozen=True, gc=False, omit_defaults=True):
    """What turns segments into tokens besides their text. `salt_ref` names a salt; the salt itself is never sent."""

    template_sha: Label = ""
    tools_sha: Label = ""
    salt_ref: Id | None = None


class PromptRef(Struct, frozen=True, gc=False):
    """The managed prompt that a request was built from."""

    name: Id
    version: Name


class CacheReport(Struct, frozen=True, gc=False, omit_defaults=True):
    """What the caches said about this request."""

    kv_cached_tokens: Tokens | None = None
    response_hit: bool | None = None
    embedding_hit: bool | None = None
    adapter_resident: bool | None = None
    key: Id | None = None
    semantic_hit: bool | None = None
    semantic_version: Name | None = None


class ReasoningStep(Struct, frozen=True, gc=False, omit_defaults=True):
    """One step of a reasoning trace."""

    op_type: Name
    input_hash: Hash
    depth: Annotated[int, Meta(ge=0, le=10_000)] = 0
    is_branch_point: bool = False


class Reasoning(Struct, frozen=True, gc=False):
    """A reasoning trace."""

    steps: Annotated[tuple[ReasoningStep, ...], Meta(max_length=MAX_SEGMENTS)] = ()


class RequestEvent(
    Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="schema", tag="request_event/1"
):
    """A request that started or finished.

    Event time is `occurred_at_ms` (arrival) for started and `completed_at_ms` for finished events. A request counts
    once as demand, whichever of its events comes first; the other adds measurements. Only origin `user` is demand.
    """

    event_id: Id
    request_id: Id
    attempt: Annotated[int, Meta(ge=1, le=1000)] = 1
    phase: Phase
    occurred_at_ms: Ms
    completed_at_ms: Ms | None = None
    origin: Origin = "user"
    tenant: Id
    user: Id | None = None
    session: Id | None = None
    pool: Id
    model: Id
    adapter: Id | None = None
    provider: Id | None = None
    api: Api = "chat"
    domain: Name | None = None
    modality: Modality = "text"
    query: Text | None = None
    query_sha256: Hash | None = None
    segments: Annotated[tuple[Segment, ...], Meta(max_length=MAX_SEGMENTS)] = ()
    render: Render | None = None
    prompt: PromptRef | None = None
    input_tokens: Tokens = 0
    output_tokens: Tokens | None = None
    stream: bool | None = None
    ttft_ms: DurationMs | None = None
    latency_ms: DurationMs | None = None
    replica: Id | None = None
    status: Annotated[int, Meta(ge=0, le=999)] = 0
    finish_reason: FinishReason | None = None
    error_type: Label | None = None
    cache: CacheReport | None = None
    reasoning: Reasoning | None = None
    response_sha256: Hash | None = None
    response_ref: Id | None = None
    sample_weight: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    traceparent: Label | None = None

    @property
    def event_time_ms(self) -> int:
        """Arrival for a started event, completion for a finished one (arrival where the producer sent none)."""
        if self.phase == "finished" and self.completed_at_ms is not None:
            return self.completed_at_ms
        return self.occurred_at_ms
