"""The port of the semantic cache: what an answer is, and what may be done with it.

Its docstrings are the contract; tests/contracts/test_semantic.py holds the real one and the fake to it. What is said in
`base` of faults, scopes and times holds here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from connectors.redis.base import Vector
from schemas.canonical import h128, query_sha256

Put = Literal["applied", "resident", "revoked"]
SAME_QUERY_DISTANCE = 0.01
"""Equal texts have equal vectors, but for rounding (`Encoder.fingerprint`: to 0.01 between kinds of processors)."""
NEAR_LOOKED_AT = 50
"""Entries within that distance that are looked at for one of the very query."""


@dataclass(frozen=True)
class CacheName:
    """One semantic cache: of one scope, under one name, for the vectors of one encoder."""

    scope: str
    cache: str
    fingerprint: str


@dataclass(frozen=True)
class Answer:
    """An answer to be put where a gateway will look for it.

    Attributes:
        prompt: the query as it was asked. vector: its embedding, float32 and finite.
        until_ms: absolute end, in wall time. issued_at_ms: when the planner decided; the later decision holds.
        model, template_version, params_hash, semantic_version: what it was made with; empty parts are left out.
        labels: further facts stored beside it, such as arm and unit.
    """

    prompt: str
    response: str
    vector: Vector
    until_ms: int
    issued_at_ms: int
    model: str
    template_version: str = ""
    params_hash: str = ""
    semantic_version: str = ""
    command_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def query_sha256(self) -> str:
        """Identity of its query."""
        return query_sha256(self.prompt)


@dataclass(frozen=True)
class HeldAnswer:
    """An entry as the cache holds it, whoever wrote it.

    Attributes:
        until_ms: its absolute end; None where a gateway wrote it.
        issued_at_ms: of the decision that it stands for; 0 where a gateway wrote it.
        fields: its filterable fields, as strings.
    """

    key: str
    prompt: str
    response: str
    until_ms: int | None
    issued_at_ms: int
    fields: Mapping[str, str]
    metadata: Mapping[str, str]

    @property
    def response_sha256(self) -> str:
        """Identity of its answer's text."""
        return h128(self.response)

    @property
    def query_sha256(self) -> str:
        """Identity of its query."""
        return query_sha256(self.prompt)

    @property
    def ours(self) -> bool:
        """Whether a warm-up wrote it."""
        return self.fields.get("source") == "warmup"

    def same_place(self, answer: Answer) -> bool:
        """Whether it answers the same query by the same model and parameters, in whatever version."""
        place = (self.fields.get("query_sha256"), self.fields.get("model"), self.fields.get("params_hash", ""))
        return place == (answer.query_sha256, answer.model, answer.params_hash)


class SemanticCache(Protocol):
    """The response cache that gateways read through RedisVL's `SemanticCache`, in exactly its layout.

    No entry of ours is ever visible without a time to live, and none ever outlives `until_ms` by more than a sweep's
    period, although RedisVL's reads prolong it.

    Every method raises `RefusedCommand` with reason `unsupported` where this Redis cannot search, and `put` with reason
    `index_mismatch` where an index of that name cannot hold such entries.
    """

    async def put(self, name: CacheName, answer: Answer) -> Put:
        """Writes an answer and its end in one step, and the index where there is none yet.

        `resident`: the same answer was there (and takes over the end of the later decision), or one that was decided
        later. `revoked`: it was invalidated by a later decision; nothing is written. An answer of ours to the same
        query by the same model and parameters that was decided earlier is taken out, whatever its versions.

        Raises:
            PoisonMessage: the vector is not a row of finite float32 numbers; nothing is written.
        """

    async def find(self, name: CacheName, query: str) -> list[HeldAnswer]:
        """The entries of ours of one query (by `query_sha256`), as the index finds them. Does not prolong."""

    async def nearest(self, name: CacheName, vector: Vector, distance: float, count: int = 1) -> list[HeldAnswer]:
        """What a gateway would be given: entries within a cosine distance (0..2), nearest first. Does not prolong."""

    async def revoke(
        self, name: CacheName, query: str, at_ms: int, response_sha256: str | None = None, vector: Vector | None = None
    ) -> int:
        """Takes out the answers to a query, and lets none that was decided until `at_ms` in again for a day.

        An answer that is known to be bad is served just as well when a gateway wrote it; with `vector` such entries of
        the same query are found and taken out too.

        Args:
            response_sha256: only the answer with this text; None for all.

        Returns:
            how many entries were there.
        """

    async def sweep(self, now_ms: int) -> int:
        """Takes out every entry of ours, of all scopes, whose absolute end has come; returns how many."""
