"""The packed form of an event between ingest and demand: head, names, chain, and a text that no state keeps.

    head   shard, kind, flags, event time, request identity, user, query, weight, lengths
    names  MessagePack of `Names`: few distinct values, so both sides keep a small cache of them
    chain  16 bytes of hash, 4 of tokens and 1 of role a segment (three columns)
    text   normal form of the last user turn, at most 1 kB; `kept` cuts it off
    answer what a finished request tells about its answer, and its length; only where flag ANSWER says so

The first two bytes are the shard, so that a `key_by` reads nothing else. Facts never leave the job: their layout may
change with the state version of `analytics.demand`.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import get_args

import msgspec
from msgspec import Struct

from schemas.request_event import Role, Segment
from schemas.reward_event import RewardSource

MAX_TEXT_BYTES = 1024
"""Longest text, in bytes of its normal form, that a fact carries to the embedder (DESIGN §6)."""

MICRO = 1_000_000
"""Weights are whole millionths, so that their sums do not depend on the order of addition."""

HASH_BYTES = 16
SEGMENT_BYTES = HASH_BYTES + 4 + 1
ROLE_INDEX: dict[str, int] = {role: index for index, role in enumerate(get_args(Role))}
SOURCES: tuple[str, ...] = get_args(RewardSource)
"""Sources of rewards by the index that facts carry."""

HEAD = struct.Struct(">HBBqQQ16sQHHI")
"""shard, kind, flags, event time ms, identity, user, query, weight in millionths, bytes of names, segments, kept."""


class Kind(enum.IntEnum):
    """What a fact is about."""

    REQUEST = 1
    REWARD = 2
    DEAD = 3
    """A record of llm.requests that became a dead letter: it carries nothing but its being there."""


_REQUEST = int(Kind.REQUEST)
"""The plain number: an enum's member costs the common event 0.1 µs."""
_REWARD = int(Kind.REWARD)


class Flag(enum.IntFlag):
    """What a request's fact says in one bit each."""

    FINISHED = 1
    DEMAND = 2
    """Its origin is a user."""
    TEXT = 4
    """The text is there."""
    TEXT_TOO_LONG = 8
    """The producer sent it, but it is longer than `MAX_TEXT_BYTES`."""
    ANSWER = 16
    """Behind the text stands an `Answer`."""


class Names(Struct, frozen=True, array_like=True):
    """The words of a request that repeat from one to the next.

    Attributes:
        template: key of dimension template: the rendering template's hash, else the managed prompt as name@version;
            empty when the request names neither.
        adapter: key of dimension adapter; empty for the base model.
    """

    scope: str
    pool: str
    model: str = ""
    adapter: str = ""
    template_sha: str = ""
    tools_sha: str = ""
    salt_ref: str = ""
    template: str = ""


class Answer(Struct, frozen=True, array_like=True):
    """What a finished request tells about its answer. Only requests that tell something of it have one.

    Attributes:
        response: 16 bytes of the answer's hash; empty where the producer sent none.
        ref: hash of the blob that holds its text; empty where there is none.
        domain: the request's domain, which weighs rewards against demand (D6).
        finish_reason, status: as in the event.
        semantic_version: of the facts behind the answer.
    """

    response: bytes
    ref: str
    domain: str
    finish_reason: str
    status: int
    semantic_version: str


NO_ANSWER = Answer(b"", "", "", "", 0, "")
"""Of a request that tells nothing of its answer."""

_answer_encoder = msgspec.msgpack.Encoder()
_answer_decoder = msgspec.msgpack.Decoder(Answer)
_ANSWER_BYTES = struct.Struct(">H")


def pack_answer(answer: Answer) -> bytes:
    """The tail of a fact with flag ANSWER."""
    body = _answer_encoder.encode(answer)
    return body + _ANSWER_BYTES.pack(len(body))


def read_answer(fact: bytes) -> Answer:
    """The answer in a fact with flag ANSWER."""
    end = len(fact) - _ANSWER_BYTES.size
    (size,) = _ANSWER_BYTES.unpack_from(fact, end)
    return _answer_decoder.decode(fact[end - size : end])


def read_text(fact: bytes, flags: int, kept: int) -> str:
    """The text in a request's fact; empty where it has none."""
    if not flags & Flag.ANSWER.value:
        return fact[kept:].decode()
    end = len(fact) - _ANSWER_BYTES.size
    (size,) = _ANSWER_BYTES.unpack_from(fact, end)
    return fact[kept : end - size].decode()


_names_encoder = msgspec.msgpack.Encoder()
_names_decoder = msgspec.msgpack.Decoder(Names)


def pack_names(
    scope: str,
    pool: str,
    model: str = "",
    adapter: str = "",
    template_sha: str = "",
    tools_sha: str = "",
    salt_ref: str = "",
    template: str = "",
) -> bytes:
    """The bytes of `Names`."""
    return _names_encoder.encode(Names(scope, pool, model, adapter, template_sha, tools_sha, salt_ref, template))


def unpack_names(names: bytes) -> Names:
    """`Names` of its bytes."""
    return _names_decoder.decode(names)


@lru_cache(maxsize=2048)
def _words(count: int) -> struct.Struct:
    return struct.Struct(f">{count}I")


@lru_cache(maxsize=2048)
def _tokens_and_roles(count: int) -> struct.Struct:
    return struct.Struct(f">{count}I{count}B")


def pack_chain(segments: Sequence[Segment], hashes: bytes | None = None) -> bytes:
    """The three columns of a chain.

    Args:
        hashes: of the segments and what follows them, as `schemas.codec.Reader.decode_hashed` gives them; without
            it their hex is read once more.
    """
    if not segments:
        return b""
    if hashes is None:
        hashes = bytes.fromhex("".join([segment.hash for segment in segments]))
    tokens, roles = [], []
    for segment in segments:
        tokens.append(segment.tokens)
        roles.append(ROLE_INDEX[segment.role])
    return hashes[: len(tokens) * HASH_BYTES] + _tokens_and_roles(len(tokens)).pack(*tokens, *roles)


def unpack_chain(chain: bytes) -> tuple[bytes, tuple[int, ...], bytes]:
    """Hashes, tokens and roles of a chain, as `envelopes.Chain` wants them."""
    count = len(chain) // SEGMENT_BYTES
    tokens_at, roles_at = count * HASH_BYTES, count * (HASH_BYTES + 4)
    return chain[:tokens_at], _words(count).unpack(chain[tokens_at:roles_at]), chain[roles_at:]


def shard_for(scope: str, query: bytes, shards: int, small: bool = False) -> int:
    """The shard that counts a query: crc32(scope | query) mod shards; a small scope lives in one."""
    key = scope.encode()
    return zlib.crc32(key if small else key + b"|" + query) % shards


def pack_request(
    shard: int,
    flags: int,
    event_time_ms: int,
    identity: int,
    user: int,
    query: bytes,
    weight_micro: int,
    names: bytes,
    chain: bytes,
    text: bytes = b"",
    answer: bytes = b"",
) -> bytes:
    """A fact of kind REQUEST.

    Args:
        identity: 64-bit hash of the request and its attempt; both phases have the same.
        user: 64-bit hash of the user, 0 where nobody is named.
        query: 16 bytes.
        weight_micro: sample weight in millionths.
        names: of `pack_names`.
        chain: of `pack_chain`.
        text: normal form of the query, at most `MAX_TEXT_BYTES`.
        answer: of `pack_answer`; goes with flag ANSWER.
    """
    kept = HEAD.size + len(names) + len(chain)
    return (
        HEAD.pack(
            shard,
            _REQUEST,
            flags,
            event_time_ms,
            identity,
            user,
            query,
            weight_micro,
            len(names),
            len(chain) // SEGMENT_BYTES,
            kept,
        )
        + names
        + chain
        + text
        + answer
    )


def pack_reward(
    shard: int,
    event_time_ms: int,
    identity: int,
    query: bytes,
    reward_micro: int,
    names: bytes,
    source: RewardSource = "judge",
    response: bytes = b"",
) -> bytes:
    """A fact of kind REWARD: the weight is the reward in millionths, the flags are the source.

    Args:
        identity: 64-bit hash of the judgement.
        response: 16 bytes of the answer that is judged; empty where the judgement names none.
    """
    kept = HEAD.size + len(names)
    return (
        HEAD.pack(
            shard,
            _REWARD,
            SOURCES.index(source),
            event_time_ms,
            identity,
            0,
            query,
            reward_micro,
            len(names),
            0,
            kept,
        )
        + names
        + response
    )


def pack_dead(shard: int, record_ms: int) -> bytes:
    """A fact of kind DEAD: its time is the record's, since it has no event time that could be trusted."""
    return HEAD.pack(shard, Kind.DEAD, 0, record_ms, 0, 0, bytes(HASH_BYTES), 0, 0, 0, HEAD.size)


def shard_of(fact: bytes) -> int:
    """The shard, for a `key_by`."""
    return fact[0] << 8 | fact[1]
