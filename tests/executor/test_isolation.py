"""10,000 look-ups of one tenant for what another's warm-ups wrote, by the readers' own clients: 0 hits (DESIGN §4)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from connectors.redis import (
    RedisAsyncBlobs,
    RedisAsyncVectors,
    RedisBlobs,
    RedisEmbeddingCache,
    RedisSemanticCache,
    RedisValues,
    RedisVectors,
    async_client,
    embedding_cache_name,
    semantic_cache_name,
    sync_client,
)
from connectors.redis.keys import cached_value_key
from connectors.redis.semantic_layout import filterable_fields
from connectors.settings import RedisSettings
from connectors.values import HttpLoaderSettings
from connectors.values.fake import FakeLoader
from executor.apply import EmbeddingApplier, ResponseApplier, Source, ValueApplier
from executor.ports import wall_clock_ms
from schemas import Embedding, Reason, Response, Target, Value, WarmupCommand
from schemas.canonical import embedding_key, h128, query_sha256, response_key, value_key

pytestmark = pytest.mark.service
FINGERPRINT = "f" * 32
MODEL = "minilm"
CACHE = "answers"
LOOK_UPS = {"answers": 3_000, "embeddings": 3_500, "values": 3_500}
QUERIES = 8
HOUR_MS = 3_600_000
Asked = Sequence[tuple[int, str]]
"""Questions by number and owner."""


def scopes(name: str) -> list[str]:
    """Tenants whose names are as confusing as names can be."""
    ends = ["", ":", "a", "A", " ", "%20", "%3A", "*", "?", "{a}", "{", "[a]", "\\", "/", "ü", "u\u0308"]
    ends += [",", "|", "\x1f", "\n"]
    words = ["responses", "embeddings", "value", "answers", f"answers:{FINGERPRINT}", "responses:answers", "vec", "-@x"]
    return [name + end for end in ends] + [f"{name}:{word}" for word in words]


def query(number: int, scope: str) -> str:
    """Half of the questions are asked by every tenant, with an answer of its own."""
    return f"common question {number}" if number % 2 else f"question {number} of {scope}"


def secret(number: int, scope: str) -> str:
    return f"secret {number} of {h128(scope)}"


def vector_of(text: str) -> np.ndarray:
    vector = np.random.default_rng(int(h128(text)[:12], 16)).standard_normal(32).astype(np.float32)
    return vector / np.linalg.norm(vector)


def command(scope: str, target: Target, key: str) -> WarmupCommand:
    now_ms = wall_clock_ms()
    return WarmupCommand(
        command_id=h128(scope, key),
        scope=scope,
        tenant=scope,
        pool="redis:main",
        target=target,
        target_key=key,
        priority=500,
        lane="tick",
        issued_at_ms=now_ms,
        not_before_ms=now_ms,
        expires_at_ms=now_ms + HOUR_MS,
        reason=Reason(trigger="test"),
        unit="u",
    )


async def warmed(redis_url: str, names: list[str]) -> None:
    """Everything of every tenant, written by the executor's own appliers."""
    settings = RedisSettings(url=redis_url)
    blocking, client = sync_client(settings), async_client(settings)
    blobs, vectors = RedisBlobs(blocking), RedisVectors(blocking)
    readers = (RedisAsyncBlobs(client), RedisAsyncVectors(client))
    prices = {(scope, f"sku:{n}"): secret(n, scope) for scope in names for n in range(QUERIES)}
    loader = HttpLoaderSettings(name="prices", url="http://unused", scopes=("*",), gather_ms=0)
    answers = ResponseApplier(*readers, RedisSemanticCache(client, now_ms=wall_clock_ms), 0.5, wall_clock_ms)
    embeddings = EmbeddingApplier(
        *readers, RedisEmbeddingCache(client, model_name=MODEL, now_ms=wall_clock_ms), HOUR_MS
    )
    values = ValueApplier({"prices": Source.of(loader, FakeLoader(prices))}, RedisValues(client))
    for scope in names:
        texts = {n: query(n, scope) for n in range(QUERIES)}
        blobs.put(scope, {query_sha256(text): text.encode() for text in texts.values()}, HOUR_MS)
        blobs.put(scope, {h128(secret(n, scope)): secret(n, scope).encode() for n in texts}, HOUR_MS)
        vectors.put(scope, FINGERPRINT, {query_sha256(t): vector_of(t + scope) for t in texts.values()}, HOUR_MS)
        endings = []
        for n, text in texts.items():
            sha, sku = query_sha256(text), f"sku:{n}"
            response = Response(
                cache=CACHE,
                fingerprint=FINGERPRINT,
                query_sha256=sha,
                response_ref=h128(secret(n, scope)),
                model="tiny",
                until_ms=wall_clock_ms() + HOUR_MS,
            )
            embedding = Embedding(fingerprint=FINGERPRINT, query_sha256=sha)
            value = Value(key=sku, loader="prices", ttl_ms=HOUR_MS)
            endings += await asyncio.gather(
                answers.apply(command(scope, response, response_key(CACHE, sha))),
                embeddings.apply(command(scope, embedding, embedding_key(FINGERPRINT, sha))),
                values.apply(command(scope, value, value_key(sku))),
            )
        assert {(ending.status, ending.reason) for ending in endings} == {("applied", "done")}
    blocking.close()
    await client.aclose()


class Tenant:
    """What one tenant's gateway and application read with: RedisVL's own clients, and plain Redis."""

    def __init__(self, redis: Any, scope: str) -> None:
        from redisvl.extensions.cache.embeddings import EmbeddingsCache
        from redisvl.extensions.cache.llm import SemanticCache
        from redisvl.utils.vectorize import CustomVectorizer

        self._redis = redis
        self._scope = scope
        self._answers = SemanticCache(
            name=semantic_cache_name(scope, CACHE, FINGERPRINT),
            redis_client=redis,
            vectorizer=CustomVectorizer(embed=lambda text, **_: vector_of(text).tolist()),
            filterable_fields=filterable_fields(),
        )
        self._embeddings = EmbeddingsCache(name=embedding_cache_name(scope, FINGERPRINT), redis_client=redis)

    def answers(self, asked: Asked) -> list[str | None]:
        """The nearest answer to each owner's very vector, without any filter."""
        found = []
        for number, owner in asked:
            vector = vector_of(query(number, owner) + owner)
            hits = self._answers.check(vector=vector.tolist(), distance_threshold=0.2)
            found.append(hits[0]["response"] if hits else None)
        return found

    def embeddings(self, asked: Asked) -> list[str | None]:
        """The vector of each owner's text, by the owner's text."""
        texts = [query(number, owner) for number, owner in asked]
        hits = self._embeddings.mget(contents=texts, model_name=MODEL)
        return [None if hit is None else str(np.asarray(hit["embedding"], np.float32).tobytes()) for hit in hits]

    def values(self, asked: Asked) -> list[str | None]:
        """The values of keys that every tenant has."""
        found = self._redis.mget([cached_value_key(self._scope, f"sku:{number}") for number, _ in asked])
        return [None if value is None else value.decode() for value in found]


def belonging(kind: str, number: int, owner: str) -> str:
    """What a hit of the owner's looks like."""
    if kind == "embeddings":
        return str(vector_of(query(number, owner) + owner).tobytes())
    return secret(number, owner)


async def test_ten_thousand_look_ups_across_tenants_hit_nothing(redis_url: str) -> None:
    names = scopes(f"t{uuid.uuid4().hex[:8]}")
    assert len(set(names)) == len(names) > 25
    await warmed(redis_url, names)
    client = sync_client(RedisSettings(url=redis_url))
    tenants = {scope: Tenant(client, scope) for scope in names}
    rng = np.random.default_rng(4)
    looked = hits = of_ones_own = 0
    for kind, count in LOOK_UPS.items():
        asked: dict[str, list[tuple[int, str]]] = {scope: [] for scope in names}
        for owner, step, number in zip(
            rng.integers(len(names), size=count),
            rng.integers(1, len(names), size=count),
            rng.integers(QUERIES, size=count),
            strict=True,
        ):
            asked[names[(owner + step) % len(names)]].append((int(number), names[owner]))
        for reader, tenant in tenants.items():
            look: Callable[[Asked], list[str | None]] = getattr(tenant, kind)
            mine = [(number, reader) for number in range(QUERIES)]
            proof = f"{kind}: a tenant must find its own, else finding nothing proves nothing"
            assert look(mine) == [belonging(kind, *one) for one in mine], proof
            for (number, owner), found in zip(asked[reader], look(asked[reader]), strict=True):
                looked += 1
                hits += found == belonging(kind, number, owner)
                if found is not None:
                    assert found == belonging(kind, number, reader), f"{reader!r} was given what is not its own"
                    of_ones_own += 1
    client.close()
    print(f"\n{looked} look-ups across {len(names)} tenants: {hits} hits of another's, {of_ones_own} of one's own")
    assert (looked, hits) == (10_000, 0)
