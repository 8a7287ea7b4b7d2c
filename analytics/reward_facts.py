"""Rewards and answers, read out of a shard's facts."""

from __future__ import annotations

from analytics.facts import HEAD, NO_ANSWER, Flag, read_answer, unpack_names
from analytics.reward_entries import Answering, Judging

_ANSWER = Flag.ANSWER.value


def answering(fact: bytes, now_ms: int) -> Answering:
    """What a request that counts says of its answer, or only that its query was asked."""
    _, _, flags, at_ms, _, _, query, _, names_bytes, _, _ = HEAD.unpack_from(fact)
    names = unpack_names(fact[HEAD.size : HEAD.size + names_bytes])
    answer = read_answer(fact) if flags & _ANSWER else NO_ANSWER
    return Answering(
        scope=names.scope,
        query=query,
        response=answer.response,
        ref=answer.ref,
        domain=answer.domain,
        model=names.model,
        adapter=names.adapter,
        template=names.template,
        semantic_version=answer.semantic_version,
        finish_reason=answer.finish_reason,
        status=answer.status,
        at_ms=at_ms,
        now_ms=now_ms,
    )


def judging(fact: bytes, now_ms: int, wait_ms: int) -> Judging:
    """A reward; it is given up `wait_ms` after its own time, or after now where that is later."""
    _, _, source, at_ms, identity, _, query, micro, names_bytes, _, kept = HEAD.unpack_from(fact)
    scope = unpack_names(fact[HEAD.size : HEAD.size + names_bytes]).scope
    return Judging(scope, query, fact[kept:], micro, source, at_ms, identity, max(at_ms, now_ms) + wait_ms)
