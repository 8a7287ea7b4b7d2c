"""The two events that a gateway publishes of every request (DESIGN §3.2)."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import cast, get_args

from schemas import CacheReport, PromptRef, RequestEvent
from schemas.canonical import query_sha256
from schemas.request_event import FinishReason, Origin
from stoker.replay.render import Rendered
from stoker.replay.stream import Answer
from stoker.replay.turns import Turn

REDACTED = "[REDACTED]"
"""What a producer that withholds texts writes in place of the query; its `query_sha256` stays its own."""
_FINISHES = frozenset(get_args(FinishReason))


@dataclass(frozen=True)
class Marks:
    """What is the same in all events of one gateway.

    Attributes:
        user_key: of the HMAC that stands for a user.
    """

    pool: str
    model: str
    user_key: bytes = field(repr=False)

    def user(self, name: str) -> str:
        """A user as events name them: keyed, so that nobody without the key can find out who it was."""
        return hmac.new(self.user_key, name.encode(), hashlib.sha256).hexdigest()[:32]


def started(
    turn: Turn, shape: Rendered, marks: Marks, request_id: str, replica: str, at_ms: int, origin: Origin = "user"
) -> RequestEvent:
    """The event of a request's arrival."""
    return RequestEvent(
        event_id=f"{request_id}-started",
        request_id=request_id,
        phase="started",
        occurred_at_ms=at_ms,
        origin=origin,
        tenant=turn.tenant,
        user=marks.user(turn.user),
        session=turn.session,
        pool=marks.pool,
        model=marks.model,
        adapter=turn.adapter,
        domain=turn.domain,
        api="completion" if turn.is_blocks else "chat",
        query=REDACTED if turn.withheld else turn.query,
        query_sha256=query_sha256(turn.query),
        segments=shape.segments,
        render=shape.render,
        prompt=None if turn.prompt is None else PromptRef(turn.prompt, "1"),
        input_tokens=shape.tokens,
        stream=True,
        replica=replica,
    )


def finished(start: RequestEvent, answer: Answer, completed_at_ms: int, stored: str | None = None) -> RequestEvent:
    """The event of its end, with what was measured.

    Args:
        stored: hash of the answer, where its text lies among the scope's blobs.
    """
    known = answer.finish_reason if answer.finish_reason in _FINISHES else None
    return RequestEvent(
        event_id=f"{start.request_id}-finished",
        request_id=start.request_id,
        phase="finished",
        occurred_at_ms=start.occurred_at_ms,
        completed_at_ms=max(completed_at_ms, start.occurred_at_ms),
        origin=start.origin,
        tenant=start.tenant,
        user=start.user,
        session=start.session,
        pool=start.pool,
        model=start.model,
        adapter=start.adapter,
        domain=start.domain,
        api=start.api,
        query=start.query,
        query_sha256=start.query_sha256,
        segments=start.segments,
        render=start.render,
        prompt=start.prompt,
        input_tokens=answer.prompt_tokens or start.input_tokens,
        output_tokens=answer.output_tokens,
        stream=True,
        ttft_ms=answer.ttft_ms,
        latency_ms=answer.latency_ms,
        replica=start.replica,
        status=answer.status,
        finish_reason=cast("FinishReason | None", known),
        error_type=answer.error_type,
        cache=None if answer.cached_tokens is None else CacheReport(kv_cached_tokens=answer.cached_tokens),
        response_sha256=stored,
        response_ref=stored,
    )
