"""What the operators of a job hand to each other: a tag, a key and a body.

An envelope is bytes, so that a router reads the first byte and a `key_by` the key without decoding anything:
one byte of tag, one byte of key length, the key in UTF-8, and the body in MessagePack (an insight's body is the JSON
that goes to its topic). Bodies are array-like structs: a field is only ever added at the end, with a default.
"""

from __future__ import annotations

import enum
from typing import TypeVar

import msgspec
from msgspec import Struct

B = TypeVar("B", bound=Struct)


class Tag(enum.IntEnum):
    """Where an envelope goes next."""

    PARTIAL = 1
    """demand → plan, key pool: totals of a pane (`Partial`)."""
    DELTA = 2
    """demand → prefix, key scope: chains asked for since the last slide (`PrefixDelta`)."""
    EMBED = 3
    """demand → embed, key scope: a query that is worth a vector (`EmbedRequest`)."""
    INSIGHT = 4
    """any → warmup.insights, key scope: finished JSON."""
    CANDIDATES = 5
    """prefix → plan, key pool: what is hot (`Candidates`)."""
    EMBEDDED = 6
    """embed → plan, key pool: a vector lies in Redis (`Embedded`)."""
    CONTROL = 7
    """ingest → plan, key pool: a ReplicaSample, WarmupOutcome or Residency as it came, in JSON."""
    COMMAND = 8
    """plan → warmup.commands, key pool + target key: finished JSON."""
    REWARDED = 9
    """demand → plan, key Redis pool: what a query and one of its answers have earned (`Rewarded`)."""
    ANSWER = 10
    """demand → plan, key Redis pool: an answer that was judged and could be served again (`Answered`)."""
    CLUSTERED = 11
    """cluster → plan, key Redis pool: groups of like queries (`clustered.Clustered`)."""
    VECTOR = 12
    """embed → cluster, key scope: the vector of an embedded query (`clustered.QueryVector`)."""
    PATTERN = 13
    """session → plan, key pool: a session's prompts resemble each other (`turns.SessionPattern`)."""
    TURN = 14
    """ingest → session, key scope + session: a prompt, its words as hashes (`turns.Turn`)."""
    PROMPTED = 15
    """ingest → prompts, key shard: a managed prompt was answered, or an answer adopted (`prompt_usage.Prompted`)."""
    PROMPTS = 16
    """prompts → plan, key pool: what became of managed prompts in a slide (`prompt_usage.PromptUse`)."""
    ASKED = 17
    """demand → focus, key scope: who asked for what since the last slide (`asked.Asked`)."""
    FOCUSED = 18
    """focus → plan, key pool: a crowd has gathered (`focused.Focused`)."""
    FEATURES = 19
    """session → plan, key pool: what a session's last prompts were like (`request_features.SessionFeatures`)."""
    FADING = 20
    """prefix → plan, key pool: the half-life of hotness has changed (`Fading`)."""


class KeyCount(Struct, frozen=True, array_like=True):
    """A key of a dimension, how often it was asked for, and by how many distinct users."""

    key: str
    count: int
    users: int


class Partial(Struct, frozen=True, array_like=True):
    """Totals of one (scope, pool, dimension) in one pane and shard; a greater revision replaces a smaller one.

    Attributes:
        sum_clogc: Σ c ln c over the shard's keys, in nats; entropies merge exactly over disjoint shards.
        top: the 50 heaviest keys.
    """

    scope: str
    pool: str
    dimension: str
    shard: int
    pane_start_ms: int
    at_ms: int
    revision: int
    weight: float
    sum_clogc: float
    distinct: int
    users: int
    top: tuple[KeyCount, ...]


class Root(Struct, frozen=True, array_like=True, gc=False):
    """What every prefix of a tree has in common, and its executor needs."""

    model: str
    adapter: str
    template_sha: str
    tools_sha: str
    salt_ref: str


class Chain(Struct, frozen=True, array_like=True):
    """A path from the root to a leaf that requests asked for.

    Attributes:
        root: index into the delta's roots.
        hashes: 16 bytes a segment, oldest first, joined.
        tokens: token count of each segment.
        roles: index of each segment's role in `schemas.request_event.Role`, one byte each.
        count: requests since the last delta (sample weights summed).
        last_ms: event time of the latest of them.
    """

    root: int
    hashes: bytes
    tokens: tuple[int, ...]
    roles: bytes
    count: float
    last_ms: int


class PrefixDelta(Struct, frozen=True, array_like=True):
    """Chains of one (scope, pool) that one shard saw in one slide. Deltas add up; each is emitted exactly once."""

    scope: str
    pool: str
    shard: int
    at_ms: int
    roots: tuple[Root, ...]
    chains: tuple[Chain, ...]
    requests: float


class EmbedRequest(Struct, frozen=True, array_like=True):
    """A query to embed. `text` is its normal form (`schemas.canonical.normal_query`)."""

    scope: str
    query: str
    text: str
    at_ms: int
    trigger: str


class Embedded(Struct, frozen=True, array_like=True):
    """A vector and its text lie in Redis under (scope, fingerprint, query)."""

    scope: str
    query: str
    fingerprint: str
    dimension: int
    text_bytes: int
    at_ms: int
    trigger: str


class Rewarded(Struct, frozen=True, array_like=True):
    """What a query's answers have earned by now; a later one replaces an earlier one.

    Rewards are sums in millionths with their counts, of the judgements that the shard remembers.

    Attributes:
        response: hash of the answer that the newest judgement names, or that joined it; empty where neither does.
        domain: of the latest request that tells one.
        at_ms: event time of the newest judgement.
        total, total_count: of all judgements of the query.
        unnamed, unnamed_count: of those that name no answer, and so count for each.
        named, named_count: of those that name `response`.
        total_weighted, total_quarters, and so on: the same rewards weighed by their sources, in millionths times
            quarters, and the sum of the quarters.
    """

    scope: str
    query: str
    response: str
    domain: str
    at_ms: int
    total: int
    total_count: int
    unnamed: int
    unnamed_count: int
    named: int
    named_count: int
    total_weighted: int = 0
    total_quarters: int = 0
    unnamed_weighted: int = 0
    unnamed_quarters: int = 0
    named_weighted: int = 0
    named_quarters: int = 0


class Answered(Struct, frozen=True, array_like=True):
    """A whole answer to a query, whose text lies among the scope's blobs under `ref`.

    Attributes:
        response: hash of the answer.
        model, adapter: what gave it; adapter is empty for the base model.
        template: version of what its prompt was rendered with, the key of dimension template.
    """

    scope: str
    query: str
    response: str
    ref: str
    model: str
    adapter: str
    template: str
    semantic_version: str
    at_ms: int


class Candidate(Struct, frozen=True, array_like=True, gc=False):
    """A prefix worth warming, seen from demand alone; the planner knows cost, absence and budget.

    Attributes:
        root: index into the roots of its `Candidates`.
        hashes, tokens, roles: its path, as in `Chain`.
        unit: hash of its family, the first segment below the trunk.
        rate_per_s: at which requests for it, and for what is below this node, are expected.
        p_asked: probability of at least one request within the horizon.
        requests: hotness, in requests (decayed).
        last_ms: event time of the last request.
    """

    root: int
    hashes: bytes
    tokens: tuple[int, ...]
    roles: bytes
    unit: str
    rate_per_s: float
    p_asked: float
    requests: float
    last_ms: int


class Candidates(Struct, frozen=True, array_like=True):
    """The best prefixes of one (scope, pool) at a slide, hottest first; replaces the scope's earlier ones."""

    scope: str
    pool: str
    at_ms: int
    roots: tuple[Root, ...]
    candidates: tuple[Candidate, ...]


class Fading(Struct, frozen=True, array_like=True):
    """The half-life of hotness of a (scope, pool) has changed, and why; see `schemas.PrefixState`."""

    scope: str
    pool: str
    at_ms: int
    rule: str
    half_life_ms: float
    median_gap_ms: float | None
    factor: float | None
    gaps: float
    nodes: int
    ghosts: int


def seal(tag: Tag, key: str, body: Struct | bytes) -> bytes:
    """An envelope of `body`; bytes go in as they are.

    Raises:
        ValueError: the key is longer than 255 bytes.
    """
    name = key.encode()
    if len(name) > 255:
        raise ValueError(f"an envelope's key has at most 255 bytes, this one has {len(name)}")
    data = body if isinstance(body, bytes) else msgspec.msgpack.encode(body)
    return bytes((tag, len(name))) + name + data


def tag_of(envelope: bytes) -> int:
    """The tag, for a router."""
    return envelope[0]


def key_of(envelope: bytes) -> str:
    """The key, for a `key_by`."""
    return envelope[2 : 2 + envelope[1]].decode()


def body_of(envelope: bytes) -> bytes:
    """The encoded body."""
    return envelope[2 + envelope[1] :]


def open_as(envelope: bytes, kind: type[B]) -> B:
    """The decoded body."""
    return msgspec.msgpack.decode(body_of(envelope), type=kind)
