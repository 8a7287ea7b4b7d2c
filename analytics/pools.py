"""Pools: groups of GPU replicas, and Redis stores. Where an envelope goes that concerns both."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from analytics.envelopes import Tag, body_of, seal, tag_of
from schemas.canonical import h128

REDIS_PREFIX = "redis:"
_MAX_KEY_BYTES = 255


def is_redis(pool: str) -> bool:
    """Whether a pool is a Redis (embeddings, responses) and not a group of GPU replicas."""
    return pool.startswith(REDIS_PREFIX)


class _Head(Struct, frozen=True, array_like=True):
    """The first fields of a Partial."""

    scope: str
    pool: str
    dimension: str


def for_redis(envelope: bytes, redis_pool: str) -> bytes | None:
    """An envelope of demand for the Redis pool's planner: totals of queries, of whatever pool, rewards and answers.

    Returns:
        the same body under the Redis pool's key; None for all that does not concern it.
    """
    tag = tag_of(envelope)
    if tag in (Tag.REWARDED, Tag.ANSWER):
        return seal(Tag(tag), redis_pool, body_of(envelope))
    return None if scope_of_queries(envelope) is None else seal(Tag.PARTIAL, redis_pool, body_of(envelope))


def scope_of_queries(envelope: bytes) -> str | None:
    """The scope of a PARTIAL with totals of queries; None for every other envelope."""
    if tag_of(envelope) != Tag.PARTIAL:
        return None
    head = msgspec.msgpack.decode(body_of(envelope), type=_Head)
    return head.scope if head.dimension == "query" else None


def envelope_key(name: str) -> str:
    """A name as key of an envelope for a topic; its digest where it is longer than an envelope allows."""
    return name if len(name.encode()) <= _MAX_KEY_BYTES else h128(name)
