"""What ingest tells of a session's prompt, and what a session tells the planner of its pool (bodies of envelopes)."""

from __future__ import annotations

from msgspec import Struct

from analytics.envelopes import Root


class Turn(Struct, frozen=True, array_like=True):
    """A prompt of a session. Its text is not in it: the words are hashes, salted by the session.

    Attributes:
        subject: h128 that stands for tenant and session.
        identity: 64-bit hash of the request and its attempt; both phases have the same.
        arrived_ms: event time of its arrival.
        names, chain: as in `analytics.facts`.
        words, distinct: a packed `patterns.Sketch`.
        tokens: of the whole prompt.
        latency_ms: from arrival to the end of the answer; 0 in the first of two phases.
    """

    scope: str
    subject: str
    identity: int
    arrived_ms: int
    names: bytes
    chain: bytes
    words: bytes
    distinct: int
    tokens: int = 0
    latency_ms: float = 0.0


class SessionPattern(Struct, frozen=True, array_like=True):
    """Consecutive prompts of a session resemble each other.

    Attributes:
        at_ms: arrival of the prompt that completed it.
        hashes, tokens, roles: the prefix that its next prompt will probably begin with, as in `envelopes.Chain`; empty
            where the prompts share none.
        known: whether the prompt before it had completed a pattern as well.
        similarity: the lesser of both Jaccard indices.
        qps: rate of the session's prompts, above 0.
    """

    scope: str
    pool: str
    subject: str
    at_ms: int
    root: Root
    hashes: bytes
    tokens: tuple[int, ...]
    roles: bytes
    known: bool
    similarity: float
    qps: float
