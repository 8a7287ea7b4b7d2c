"""RedisVL's own `SemanticCache` hits what Stoker wrote, and Stoker handles what RedisVL wrote."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio

from connectors.redis import Answer, CacheName, RedisSemanticCache, async_client, semantic_cache_name
from connectors.redis.semantic_layout import filterable_fields
from connectors.settings import RedisSettings
from schemas.canonical import h128, query_sha256
from schemas.errors import RefusedCommand

pytestmark = pytest.mark.service
FINGERPRINT = "f" * 32


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def name() -> CacheName:
    return CacheName(f"s:{uuid.uuid4().hex}", "faq", FINGERPRINT)


@pytest_asyncio.fixture
async def cache(redis_url: str) -> AsyncIterator[RedisSemanticCache]:
    client = async_client(RedisSettings(url=redis_url))
    yield RedisSemanticCache(client, now_ms=wall_ms)
    await client.aclose()


def gateway_cache(redis_url: str, name: CacheName, fields=None, ttl: int | None = None):
    from redisvl.extensions.cache.llm import SemanticCache
    from redisvl.utils.vectorize import CustomVectorizer

    return SemanticCache(
        name=semantic_cache_name(name.scope, name.cache, name.fingerprint),
        redis_url=redis_url,
        vectorizer=CustomVectorizer(embed=lambda _text, **_: [1.0, 0.0, 0.0, 0.0]),
        filterable_fields=filterable_fields() if fields is None else fields,
        ttl=ttl,
    )


def an_answer(**fields) -> Answer:
    now_ms = wall_ms()
    values = {
        "prompt": "Where is my card?",
        "response": "In your ü€ letter box.",
        "vector": np.asarray([1, 0, 0, 0], np.float32),
        "until_ms": now_ms + 60_000,
        "issued_at_ms": now_ms,
        "model": "llama, 3",
        "template_version": "2",
        "command_id": "c1",
        **fields,
    }
    return Answer(**values)


@pytest.mark.parametrize("first", ["stoker", "gateway"])
async def test_redisvl_hits_what_stoker_wrote(
    cache: RedisSemanticCache, redis_url: str, name: CacheName, first: str
) -> None:
    from redisvl.query.filter import Num, Tag

    if first == "gateway":
        gateway_cache(redis_url, name)
    answer = an_answer()
    assert await cache.put(name, answer) == "applied"
    gateway = gateway_cache(redis_url, name)
    ours = (Tag("scope") == name.scope) & (Tag("model") == "llama, 3") & (Num("expires_at_ms") > wall_ms())
    (hit,) = gateway.check(vector=[0.99, 0.01, 0.0, 0.0], filter_expression=ours)
    assert (hit["prompt"], hit["response"]) == (answer.prompt, answer.response)
    assert (hit["scope"], hit["model"], hit["source"]) == (name.scope, "llama, 3", "warmup")
    assert hit["metadata"]["command_id"] == "c1"
    assert gateway.check(vector=[1.0, 0.0, 0.0, 0.0], filter_expression=Tag("scope") == "another") == []
    assert gateway.check(vector=[1.0, 0.0, 0.0, 0.0], filter_expression=Tag("model") == "LLAMA, 3") == []


async def test_stoker_writes_the_very_entry_that_redisvl_writes(
    cache: RedisSemanticCache, redis_url: str, name: CacheName
) -> None:
    answer = an_answer()
    await cache.put(name, answer)
    (held,) = await cache.find(name, answer.query_sha256)
    client = async_client(RedisSettings(url=redis_url))
    ours = await client.hgetall(held.key)
    await client.delete(held.key)
    key = gateway_cache(redis_url, name).store(
        answer.prompt, answer.response, answer.vector.tolist(), {"command_id": "c1"}, dict(held.fields)
    )
    theirs = await client.hgetall(key)
    await client.aclose()
    assert key == held.key
    times = {b"inserted_at", b"updated_at"}
    own = {b"expires_at_ms", b"issued_at_ms"}
    assert {k: v for k, v in theirs.items() if k not in times} == {
        k: v for k, v in ours.items() if k not in times | own
    }
    assert times <= ours.keys()


async def test_a_hit_prolongs_and_the_sweep_ends_it(cache: RedisSemanticCache, redis_url: str, name: CacheName) -> None:
    answer = an_answer(until_ms=wall_ms() + 1_500)
    await cache.put(name, answer)
    gateway = gateway_cache(redis_url, name, ttl=3_600)
    assert gateway.check(vector=[1.0, 0.0, 0.0, 0.0])
    while wall_ms() <= answer.until_ms:
        time.sleep(0.05)
    assert gateway.check(vector=[1.0, 0.0, 0.0, 0.0]), "RedisVL's read has prolonged it beyond its end"
    await cache.sweep(wall_ms())
    assert gateway.check(vector=[1.0, 0.0, 0.0, 0.0]) == []


async def test_a_sweep_leaves_a_gateways_own_answers(
    cache: RedisSemanticCache, redis_url: str, name: CacheName
) -> None:
    gateway = gateway_cache(redis_url, name)
    gateway.store("theirs", "r", [1.0, 0.0, 0.0, 0.0])
    await cache.put(name, an_answer())
    await cache.sweep(wall_ms() + 10_000_000)
    assert [hit["prompt"] for hit in gateway.check(vector=[1.0, 0.0, 0.0, 0.0], num_results=9)] == ["theirs"]


async def test_a_bad_answer_is_taken_out_whoever_wrote_it(
    cache: RedisSemanticCache, redis_url: str, name: CacheName
) -> None:
    gateway, vector = gateway_cache(redis_url, name), [1.0, 0.0, 0.0, 0.0]
    gateway.store("Where  is my card?", "In the sea.", vector)
    gateway.store("Where is my cat?", "In the sea.", vector)
    gateway.store("Where is my card?", "In the bank.", vector)
    await cache.put(name, an_answer(response="In the sea."))
    query, bad = query_sha256("Where is my card?"), h128("In the sea.")
    removed = await cache.revoke(name, query, wall_ms(), bad, np.asarray(vector, np.float32))
    assert removed == 2
    left = {(hit["prompt"], hit["response"]) for hit in gateway.check(vector=vector, num_results=9)}
    assert left == {("Where is my cat?", "In the sea."), ("Where is my card?", "In the bank.")}


async def test_a_gateways_index_with_other_fields_is_refused_and_left(
    cache: RedisSemanticCache, redis_url: str, name: CacheName
) -> None:
    gateway = gateway_cache(redis_url, name, [{"name": "tenant", "type": "tag"}])
    with pytest.raises(RefusedCommand, match="source") as refusal:
        await cache.put(name, an_answer())
    assert refusal.value.reason == "index_mismatch"
    assert gateway.check(vector=[1.0, 0.0, 0.0, 0.0]) == []
    assert await cache.find(name, query_sha256("x")) == []
    await cache.sweep(wall_ms())


async def test_an_index_that_was_dropped_is_made_anew(
    cache: RedisSemanticCache, redis_url: str, name: CacheName
) -> None:
    await cache.put(name, an_answer())
    gateway_cache(redis_url, name).delete()
    assert await cache.find(name, an_answer().query_sha256) == []
    assert await cache.put(name, an_answer()) == "applied"
    assert gateway_cache(redis_url, name).check(vector=[1.0, 0.0, 0.0, 0.0])
