"""What Stoker writes, RedisVL's own client reads, and the other way round: the layout is the contract."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio

from connectors.redis import EmbeddingEntry, RedisEmbeddingCache, async_client, embedding_cache_name
from connectors.settings import RedisSettings

pytestmark = pytest.mark.service
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
NOW_MS = 1_796_000_000_123


@pytest_asyncio.fixture
async def cache(redis_url: str) -> AsyncIterator[RedisEmbeddingCache]:
    client = async_client(RedisSettings(url=redis_url))
    yield RedisEmbeddingCache(client, model_name=MODEL, now_ms=lambda: NOW_MS)
    await client.aclose()


def gateway_cache(redis_url: str, scope: str):
    from redisvl.extensions.cache.embeddings import EmbeddingsCache

    return EmbeddingsCache(name=embedding_cache_name(scope, "f1"), redis_url=redis_url)


async def test_redisvl_reads_what_stoker_wrote(cache: RedisEmbeddingCache, redis_url: str) -> None:
    scope = f"s:{uuid.uuid4().hex}"
    vector = np.linspace(-1, 1, 384).astype(np.float32)
    await cache.put(scope, "f1", [EmbeddingEntry("how do I ü€?", vector, "c1", {"arm": "warm"})], 60_000)
    hit = gateway_cache(redis_url, scope).get(content="how do I ü€?", model_name=MODEL)
    assert hit is not None
    assert hit["content"] == "how do I ü€?"
    assert hit["model_name"] == MODEL
    assert hit["inserted_at"] == NOW_MS / 1000
    assert np.array_equal(np.asarray(hit["embedding"], dtype=np.float32), vector)
    assert hit["metadata"]["source"] == "warmup"
    assert hit["metadata"]["command_id"] == "c1"


async def test_stoker_writes_the_very_fields_that_redisvl_writes(cache: RedisEmbeddingCache, redis_url: str) -> None:
    client = async_client(RedisSettings(url=redis_url))
    fields = []
    for scope in (f"a{uuid.uuid4().hex}", f"b{uuid.uuid4().hex}"):
        vector = np.arange(4, dtype=np.float32)
        if scope.startswith("a"):
            await cache.put(scope, "f1", [EmbeddingEntry("text", vector)], 60_000)
        else:
            gateway_cache(redis_url, scope).set("text", MODEL, vector.tolist(), metadata={"source": "gateway"})
        (key,) = [key async for key in client.scan_iter(match=f"*{scope}*")]
        stored = await client.hgetall(key)
        fields.append((key.rpartition(b":")[2], stored.keys(), stored[b"embedding"], stored[b"entry_id"]))
    await client.aclose()
    assert fields[0] == fields[1]


async def test_gateways_own_entry_is_neither_replaced_nor_given_an_end(
    cache: RedisEmbeddingCache, redis_url: str
) -> None:
    scope = f"s{uuid.uuid4().hex}"
    gateway = gateway_cache(redis_url, scope)
    gateway.set("text", MODEL, [1.0, 2.0])
    assert await cache.put(scope, "f1", [EmbeddingEntry("text", np.zeros(2, dtype=np.float32))], 1_000) == ["resident"]
    assert await cache.remaining_ms(scope, "f1", "text") is None
    assert await cache.metadata(scope, "f1", "text") == {}
    assert await cache.remove(scope, "f1", ["text"]) == 0
    hit = gateway.get(content="text", model_name=MODEL)
    assert hit is not None
    assert hit["embedding"] == [1.0, 2.0]


async def test_no_entry_of_ours_is_ever_without_an_end(cache: RedisEmbeddingCache, redis_url: str) -> None:
    scope = f"s{uuid.uuid4().hex}"
    entries = [EmbeddingEntry(f"t{n}", np.ones(8, dtype=np.float32)) for n in range(200)]
    await cache.put(scope, "f1", entries, 60_000)
    client = async_client(RedisSettings(url=redis_url))
    ends = [await client.pttl(key) async for key in client.scan_iter(match=f"*{scope}*", count=1000)]
    await client.aclose()
    assert len(ends) == 200
    assert all(0 < end <= 60_000 for end in ends)
