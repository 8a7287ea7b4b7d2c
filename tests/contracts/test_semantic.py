"""One suite for the semantic cache, run on the one in memory and on a real Redis."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from connectors.redis import Answer, CacheName, RedisSemanticCache, SemanticCache, async_client
from connectors.redis.fake import MemoryStore
from connectors.redis.semantic_fake import MemorySemanticCache
from connectors.settings import RedisSettings
from schemas.canonical import h128, query_sha256
from schemas.errors import PoisonMessage, RefusedCommand

MINUTE_MS = 60_000
FINGERPRINT = "f" * 32


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Cached:
    cache: SemanticCache
    left_ms: Callable[[str], Awaitable[int | None]]
    prolong: Callable[[str, int], Awaitable[Any]]


@pytest_asyncio.fixture(params=["fake", pytest.param("real", marks=pytest.mark.service)])
async def cached(request: pytest.FixtureRequest) -> AsyncIterator[Cached]:
    if request.param == "fake":
        store = MemoryStore()

        async def left(key: str) -> int | None:
            return None if store.read(key) is None else store.ends_ms[key] - wall_ms()

        async def prolong(key: str, ttl_ms: int) -> None:
            store.ends_ms[key] = wall_ms() + ttl_ms

        yield Cached(MemorySemanticCache(store), left, prolong)
        return
    client = async_client(RedisSettings(url=request.getfixturevalue("redis_url")))

    async def left_real(key: str) -> int | None:
        left: int = await client.pttl(key)
        return left if left >= 0 else None

    yield Cached(RedisSemanticCache(client, now_ms=wall_ms), left_real, lambda key, ttl: client.pexpire(key, ttl))
    await client.aclose()


@pytest.fixture
def name() -> CacheName:
    """A cache of the test's own, with everything in its name that could confuse a key or a query."""
    return CacheName(f"t{uuid.uuid4().hex[:8]}:{{a}}*[b] %3A/ü", "faq, all", FINGERPRINT)


def unit(seed: int, dimension: int = 16) -> np.ndarray:
    vector = np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)
    return vector / np.linalg.norm(vector)


def an_answer(prompt: str = "Where is my card?", response: str = "In your letter box.", **fields: Any) -> Answer:
    now_ms = wall_ms()
    values = {"vector": unit(1), "until_ms": now_ms + MINUTE_MS, "issued_at_ms": now_ms, "model": "m, 1", **fields}
    return Answer(prompt, response, **values)


async def test_an_answer_is_found_by_its_query_and_by_its_vector(cached: Cached, name: CacheName) -> None:
    answer = an_answer(labels={"unit": "u", "arm": "warm"}, command_id="c1", semantic_version="7")
    assert await cached.cache.put(name, answer) == "applied"
    (found,) = await cached.cache.find(name, query_sha256("  Where is my\ncard? "))
    assert (found.prompt, found.response, found.until_ms) == (answer.prompt, answer.response, answer.until_ms)
    assert found.metadata == {"unit": "u", "arm": "warm", "command_id": "c1"}
    assert found.fields == {
        "scope": name.scope,
        "fingerprint": FINGERPRINT,
        "model": "m, 1",
        "semantic_version": "7",
        "query_sha256": query_sha256(answer.prompt),
        "source": "warmup",
    }
    assert await cached.cache.nearest(name, unit(1), 0.01) == [found]
    assert await cached.cache.nearest(name, unit(2), 0.01) == []
    left = await cached.left_ms(found.key)
    assert left is not None
    assert 0 < left <= MINUTE_MS


async def test_the_nearest_comes_first(cached: Cached, name: CacheName) -> None:
    base = unit(3)
    for away in (0.3, 0.1, 0.2):
        near = base + away * unit(4)
        await cached.cache.put(name, an_answer(f"q {away}", vector=(near / np.linalg.norm(near)).astype(np.float32)))
    found = await cached.cache.nearest(name, base, 0.5, 2)
    assert [held.prompt for held in found] == ["q 0.1", "q 0.2"]


async def test_nothing_is_found_where_nothing_was_written(cached: Cached, name: CacheName) -> None:
    assert await cached.cache.find(name, query_sha256("x")) == []
    assert await cached.cache.nearest(name, unit(1), 2.0) == []
    assert await cached.cache.revoke(name, query_sha256("x"), 1) == 0


async def test_the_same_answer_again_is_resident_and_takes_the_later_end(cached: Cached, name: CacheName) -> None:
    first = an_answer()
    later = replace(first, until_ms=first.until_ms + MINUTE_MS, issued_at_ms=first.issued_at_ms + 1)
    assert await cached.cache.put(name, first) == "applied"
    assert await cached.cache.put(name, later) == "resident"
    assert await cached.cache.put(name, first) == "resident", "a decision that comes late changes nothing"
    (found,) = await cached.cache.find(name, first.query_sha256)
    assert (found.until_ms, found.issued_at_ms) == (later.until_ms, later.issued_at_ms)
    assert (await cached.left_ms(found.key) or 0) > MINUTE_MS


async def test_a_later_version_replaces_and_another_model_stands_beside(cached: Cached, name: CacheName) -> None:
    old = an_answer(template_version="1", semantic_version="1")
    other = replace(old, model="other")
    new = replace(old, response="On its way.", semantic_version="2", issued_at_ms=old.issued_at_ms + 1)
    for answer in (old, other, new):
        assert await cached.cache.put(name, answer) == "applied"
    found = {held.fields["model"]: held for held in await cached.cache.find(name, old.query_sha256)}
    assert found.keys() == {"m, 1", "other"}
    assert found["m, 1"].response == "On its way."
    assert await cached.cache.put(name, old) == "resident", "a decision that comes late does not bring the old back"
    assert len(await cached.cache.find(name, old.query_sha256)) == 2


async def test_a_revoked_answer_is_gone_and_comes_back_only_by_a_later_decision(
    cached: Cached, name: CacheName
) -> None:
    good, bad = an_answer(params_hash="a"), an_answer(response="In the sea.", params_hash="b")
    for answer in (good, bad):
        await cached.cache.put(name, answer)
    at_ms = bad.issued_at_ms + 5
    assert await cached.cache.revoke(name, bad.query_sha256, at_ms, h128(bad.response)) == 1
    assert [held.response for held in await cached.cache.find(name, good.query_sha256)] == [good.response]
    assert await cached.cache.put(name, bad) == "revoked"
    assert await cached.cache.revoke(name, bad.query_sha256, at_ms) == 1
    assert await cached.cache.find(name, good.query_sha256) == []
    assert await cached.cache.put(name, good) == "revoked"
    assert await cached.cache.revoke(name, bad.query_sha256, 1) == 0, "a mark never moves back"
    assert await cached.cache.put(name, replace(good, issued_at_ms=at_ms)) == "revoked"
    assert await cached.cache.put(name, replace(good, issued_at_ms=at_ms + 1)) == "applied"


async def test_a_sweep_takes_what_has_ended_though_a_reader_prolonged_it(cached: Cached, name: CacheName) -> None:
    ended, lives = an_answer("a", until_ms=wall_ms() + 300), an_answer("b")
    for answer in (ended, lives):
        await cached.cache.put(name, answer)
    (entry,) = await cached.cache.find(name, ended.query_sha256)
    await cached.prolong(entry.key, 10 * MINUTE_MS)
    assert await cached.cache.sweep(ended.until_ms - 1) == 0
    assert len(await cached.cache.find(name, ended.query_sha256)) == 1
    assert await cached.cache.sweep(ended.until_ms) == 1
    assert await cached.cache.find(name, ended.query_sha256) == []
    assert len(await cached.cache.find(name, lives.query_sha256)) == 1


async def test_what_nobody_prolonged_ends_by_itself(cached: Cached, name: CacheName) -> None:
    answer = an_answer(until_ms=wall_ms() + 150)
    await cached.cache.put(name, answer)
    deadline = time.monotonic() + 30
    while await cached.cache.find(name, answer.query_sha256):
        assert time.monotonic() < deadline


async def test_no_cache_sees_into_another(cached: Cached, name: CacheName) -> None:
    answer = an_answer()
    await cached.cache.put(name, answer)
    others = [
        replace(name, scope=name.scope + "x"),
        replace(name, scope=name.scope[:-1]),
        replace(name, scope=name.scope.upper()),
        replace(name, scope="*"),
        replace(name, cache="faq"),
        replace(name, cache="faq, all2"),
        replace(name, fingerprint="e" * 32),
    ]
    for other in others:
        await cached.cache.put(other, replace(answer, prompt="other", vector=unit(9)))
        assert await cached.cache.find(other, answer.query_sha256) == []
        assert [held.prompt for held in await cached.cache.nearest(other, unit(1), 2.0, 10)] == ["other"]
        assert await cached.cache.revoke(other, answer.query_sha256, answer.issued_at_ms + 9, vector=unit(1)) == 0
    assert len(await cached.cache.nearest(name, unit(1), 2.0, 10)) == 1


async def test_a_vector_that_is_none_is_never_written(cached: Cached, name: CacheName) -> None:
    for vector in (np.full(4, np.nan, np.float32), np.zeros(4), np.zeros(0, np.float32)):
        with pytest.raises(PoisonMessage):
            await cached.cache.put(name, an_answer(vector=vector))
    assert await cached.cache.nearest(name, unit(1), 2.0) == []


async def test_another_length_of_vectors_is_refused(cached: Cached, name: CacheName) -> None:
    await cached.cache.put(name, an_answer())
    with pytest.raises(RefusedCommand) as refusal:
        await cached.cache.put(name, an_answer("another", vector=unit(1, 8)))
    assert refusal.value.reason == "index_mismatch"
