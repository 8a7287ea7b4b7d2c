"""One suite for the Redis ports, run on the store in memory and, where there is one, on a real Redis."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np
import pytest
import pytest_asyncio

from connectors.redis import (
    Already,
    AsyncBlobs,
    AsyncVectors,
    Blobs,
    EmbeddingCache,
    EmbeddingEntry,
    Leases,
    Ledger,
    RedisAsyncBlobs,
    RedisAsyncVectors,
    RedisBlobs,
    RedisEmbeddingCache,
    RedisLeases,
    RedisLedger,
    RedisVectors,
    Started,
    Vectors,
    async_client,
    sync_client,
)
from connectors.redis.fake import (
    MemoryAsyncBlobs,
    MemoryAsyncVectors,
    MemoryBlobs,
    MemoryEmbeddingCache,
    MemoryLeases,
    MemoryLedger,
    MemoryStore,
    MemoryVectors,
)
from connectors.settings import RedisSettings
from schemas.errors import PoisonMessage

MINUTE_MS = 60_000
LEASE_MS = 2_000
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
DEADLINE_S = 120


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Stores:
    blobs: Blobs
    blobs_async: AsyncBlobs
    vectors: Vectors
    vectors_async: AsyncVectors
    ledger: Ledger
    leases: Leases
    embeddings: EmbeddingCache


@pytest_asyncio.fixture(params=["fake", pytest.param("real", marks=pytest.mark.service)])
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[Stores]:
    if request.param == "fake":
        store = MemoryStore()
        yield Stores(
            MemoryBlobs(store),
            MemoryAsyncBlobs(store),
            MemoryVectors(store),
            MemoryAsyncVectors(store),
            MemoryLedger(store),
            MemoryLeases(store, life_ms=LEASE_MS),
            MemoryEmbeddingCache(store, model_name=MODEL),
        )
        return
    settings = RedisSettings(url=request.getfixturevalue("redis_url"))
    blocking, client = sync_client(settings), async_client(settings)
    yield Stores(
        RedisBlobs(blocking),
        RedisAsyncBlobs(client),
        RedisVectors(blocking),
        RedisAsyncVectors(client),
        RedisLedger(client),
        RedisLeases(client, life_ms=LEASE_MS),
        RedisEmbeddingCache(client, model_name=MODEL, now_ms=wall_ms),
    )
    blocking.close()
    await client.aclose()


@pytest.fixture
def scope() -> str:
    """A scope of the test's own, with everything in its name that could confuse a key."""
    return f"t{uuid.uuid4().hex[:8]}:{{a}}*[b] %3A/ü"


def a_hash() -> str:
    return uuid.uuid4().hex


async def until(condition) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not await condition():
        assert time.monotonic() < deadline, "condition never held"
        await asyncio.sleep(0.02)


def unit(seed: int, dimension: int = 384) -> np.ndarray:
    vector = np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)
    return vector / np.linalg.norm(vector)


async def test_more_callers_than_connections_wait_their_turn(stores: Stores) -> None:
    names = [a_hash() for _ in range(200)]
    await asyncio.gather(*(stores.ledger.begin(name, "r0", "me") for name in names))
    states = await asyncio.gather(*(stores.ledger.finish(name, "r0", "me", "applied") for name in names))
    assert states == ["applied"] * 200


# blobs


async def test_blob_of_a_job_is_read_by_the_executor(stores: Stores, scope: str) -> None:
    texts = {a_hash(): text.encode() for text in ("", "short", "ü€\0" * 1000, "x" * (1 << 20))}
    stores.blobs.put(scope, texts, MINUTE_MS)
    assert await stores.blobs_async.get(scope, [*texts, a_hash()]) == texts
    assert stores.blobs.get(scope, list(texts)) == texts
    assert stores.blobs.get(scope, []) == {}
    assert await stores.blobs_async.get(scope, []) == {}


async def test_blob_of_another_scope_is_out_of_reach(stores: Stores, scope: str) -> None:
    content = a_hash()
    stores.blobs.put(scope, {content: b"mine"}, MINUTE_MS)
    for other in (scope + ":", scope.replace(":", "%3A"), scope[:-1], "*", scope.upper()):
        assert stores.blobs.get(other, [content]) == {}


async def test_blob_ends_and_a_present_one_is_never_shortened(stores: Stores, scope: str) -> None:
    brief, long = a_hash(), a_hash()
    stores.blobs.put(scope, {brief: b"b"}, 150)
    stores.blobs.put(scope, {long: b"l"}, MINUTE_MS)
    stores.blobs.put(scope, {long: b"l"}, 100)

    async def ended() -> bool:
        return not stores.blobs.get(scope, [brief])

    await until(ended)
    assert stores.blobs.get(scope, [long]) == {long: b"l"}


async def test_first_content_of_a_hash_stays(stores: Stores, scope: str) -> None:
    content = a_hash()
    stores.blobs.put(scope, {content: b"first"}, MINUTE_MS)
    stores.blobs.put(scope, {content: b"second"}, MINUTE_MS)
    assert stores.blobs.get(scope, [content]) == {content: b"first"}


async def test_renewed_blob_outlives_its_first_end(stores: Stores, scope: str) -> None:
    kept, dropped = a_hash(), a_hash()
    stores.blobs.put(scope, {kept: b"k", dropped: b"d"}, 3_000)
    assert await stores.blobs_async.renew(scope, [kept, a_hash()], MINUTE_MS) == {kept}
    assert await stores.blobs_async.renew(scope, [kept], 10) == {kept}
    assert await stores.blobs_async.renew(scope, [], 10) == frozenset()

    async def ended() -> bool:
        return dropped not in stores.blobs.get(scope, [dropped])

    await until(ended)
    assert stores.blobs.get(scope, [kept]) == {kept: b"k"}


async def test_too_long_blob_is_refused_and_nothing_is_stored(stores: Stores, scope: str) -> None:
    good, bad = a_hash(), a_hash()
    with pytest.raises(PoisonMessage):
        stores.blobs.put(scope, {good: b"g", bad: b"x" * ((1 << 20) + 1)}, MINUTE_MS)
    assert stores.blobs.get(scope, [good, bad]) == {}


# vectors


async def test_vector_comes_back_bit_by_bit(stores: Stores, scope: str) -> None:
    vectors = {a_hash(): unit(n) for n in range(5)}
    stores.vectors.put(scope, "f1", vectors, MINUTE_MS)
    for read in (
        stores.vectors.get(scope, "f1", [*vectors, a_hash()]),
        await stores.vectors_async.get(scope, "f1", [*vectors, a_hash()]),
    ):
        assert read.keys() == vectors.keys()
        assert all(read[q].dtype == np.float32 and np.array_equal(read[q], v) for q, v in vectors.items())
    assert stores.vectors.get(scope, "f1", []) == {}


async def test_vector_of_another_encoder_or_scope_is_out_of_reach(stores: Stores, scope: str) -> None:
    query = a_hash()
    stores.vectors.put(scope, "f1", {query: unit(1)}, MINUTE_MS)
    assert stores.vectors.get(scope, "f2", [query]) == {}
    assert stores.vectors.get(scope + "x", "f1", [query]) == {}


@pytest.mark.parametrize(
    "bad",
    [
        np.array([np.nan, 1], dtype=np.float32),
        np.array([np.inf], dtype=np.float32),
        np.array([], dtype=np.float32),
        np.array([[1.0]], dtype=np.float32),
        np.array([1.0], dtype=np.float64),
    ],
)
async def test_failed_embedding_is_never_written(stores: Stores, scope: str, bad: np.ndarray) -> None:
    good = a_hash()
    with pytest.raises(PoisonMessage):
        stores.vectors.put(scope, "f1", {good: unit(1), a_hash(): bad}, MINUTE_MS)
    assert stores.vectors.get(scope, "f1", [good]) == {}
    with pytest.raises(PoisonMessage):
        await stores.embeddings.put(scope, "f1", [EmbeddingEntry("a", unit(1)), EmbeddingEntry("b", bad)], MINUTE_MS)
    assert await stores.embeddings.get(scope, "f1", "a") is None


# ledger and leases


async def test_command_has_two_phases(stores: Stores) -> None:
    command = a_hash()
    assert await stores.ledger.read(command, "r1") is None
    assert await stores.ledger.begin(command, "r1", "h1") == Started(taken_over=False)
    assert await stores.ledger.read(command, "r1") == "started"
    assert await stores.ledger.finish(command, "r1", "h1", "applied") == "applied"
    assert await stores.ledger.begin(command, "r1", "h2") == Already("applied", "h1")
    assert await stores.ledger.begin(command, "r1", "h1") == Already("applied", "h1")
    assert await stores.ledger.begin(command, "r2", "h2") == Started()


async def test_redelivery_to_the_same_holder_does_not_begin_again(stores: Stores) -> None:
    command = a_hash()
    await stores.ledger.begin(command, "r1", "h1")
    assert await stores.ledger.begin(command, "r1", "h1") == Already("started", "h1")


@pytest.mark.parametrize("lease_on", ["r1", "h1"])
async def test_command_of_a_living_holder_is_not_taken_over(stores: Stores, lease_on: str) -> None:
    command, suffix = a_hash(), uuid.uuid4().hex[:6]
    replica, holder = f"r1-{suffix}", f"h1-{suffix}"
    lease = await stores.leases.acquire({"r1": replica, "h1": holder}[lease_on], holder)
    assert lease is not None
    await stores.ledger.begin(command, replica, holder)
    assert await stores.ledger.begin(command, replica, "h2") == Already("started", holder)
    await stores.leases.release(lease)
    assert await stores.ledger.begin(command, replica, "h2") == Started(taken_over=True)


async def test_dead_holders_command_is_taken_over_and_its_late_finish_is_ignored(stores: Stores) -> None:
    command = a_hash()
    await stores.ledger.begin(command, "r1", "dead")
    assert await stores.ledger.begin(command, "r1", "h2") == Started(taken_over=True)
    assert await stores.ledger.finish(command, "r1", "dead", "failed") == "started"
    assert await stores.ledger.finish(command, "r1", "h2", "applied") == "applied"


async def test_one_of_many_claimants_wins(stores: Stores) -> None:
    command, replica = a_hash(), f"r-{uuid.uuid4().hex[:6]}"
    await stores.leases.acquire(replica, "h0")
    answers = await asyncio.gather(*[stores.ledger.begin(command, replica, "h0") for _ in range(20)])
    assert answers.count(Started()) == 1
    assert answers.count(Already("started", "h0")) == 19


async def test_applied_is_never_replaced_by_resident_and_otherwise_a_repetition_overwrites(stores: Stores) -> None:
    command = a_hash()
    assert await stores.ledger.finish(command, "r1", "h1", "applied") == "applied"
    assert await stores.ledger.finish(command, "r1", "h2", "resident") == "applied"
    other = a_hash()
    assert await stores.ledger.finish(other, "r1", "h1", "resident") == "resident"
    assert await stores.ledger.finish(other, "r1", "h1", "applied") == "applied"
    assert await stores.ledger.finish(other, "r1", "h1", "failed") == "failed"


async def test_ledger_is_restored_from_outcomes(stores: Stores) -> None:
    commands = [a_hash() for _ in range(2_500)]
    await stores.ledger.begin(commands[0], "r1", "dead")
    assert await stores.ledger.restore((c, "r1", "applied") for c in commands) == 2_500
    assert await stores.ledger.restore([(commands[1], "r1", "resident")]) == 1
    assert await stores.ledger.begin(commands[0], "r1", "h2") == Already("applied", "")
    assert await stores.ledger.begin(commands[1], "r1", "h2") == Already("applied", "")
    assert await stores.ledger.begin(commands[-1], "r1", "h2") == Already("applied", "")
    assert await stores.ledger.restore([]) == 0


async def test_ledger_refuses_what_is_no_command_id(stores: Stores) -> None:
    with pytest.raises(ValueError, match="command id"):
        await stores.ledger.begin("blob", "r1", "h1")
    with pytest.raises(ValueError, match="holder"):
        await stores.ledger.finish(a_hash(), "r1", "", "applied")


async def test_lease_has_one_holder_and_the_same_holder_keeps_its_token(stores: Stores) -> None:
    replica = f"r:{uuid.uuid4().hex}"
    lease = await stores.leases.acquire(replica, "h1")
    assert lease is not None
    assert await stores.leases.acquire(replica, "h2") is None
    assert await stores.leases.acquire(replica, "h1") == lease
    assert await stores.leases.holder(replica) == "h1"
    assert await stores.leases.release(lease)
    assert not await stores.leases.release(lease)
    assert await stores.leases.holder(replica) is None


async def test_lease_that_is_not_renewed_ends_and_the_next_token_is_greater(stores: Stores) -> None:
    replica = f"r:{uuid.uuid4().hex}"
    first = await stores.leases.acquire(replica, "h1")
    assert first is not None

    async def free() -> bool:
        return await stores.leases.holder(replica) is None

    await until(free)
    second = await stores.leases.acquire(replica, "h2")
    assert second is not None
    assert second.token > first.token
    assert not await stores.leases.renew(first)
    assert not await stores.leases.release(first)
    assert await stores.leases.holder(replica) == "h2"


async def test_renewed_lease_outlives_its_first_end(stores: Stores) -> None:
    replica = f"r:{uuid.uuid4().hex}"
    lease = await stores.leases.acquire(replica, "h1")
    assert lease is not None
    began = time.monotonic()
    while time.monotonic() - began < 2 * LEASE_MS / 1000:
        assert await stores.leases.renew(lease)
        await asyncio.sleep(LEASE_MS / 8_000)
    assert await stores.leases.holder(replica) == "h1"


async def test_tokens_grow_with_quick_changes_of_holder(stores: Stores) -> None:
    replica = f"r:{uuid.uuid4().hex}"
    tokens = []
    for n in range(20):
        lease = await stores.leases.acquire(replica, f"h{n}")
        assert lease is not None
        tokens.append(lease.token)
        await stores.leases.release(lease)
    assert tokens == sorted(set(tokens))


# embedding cache


async def test_embedding_is_put_once_with_an_end(stores: Stores, scope: str) -> None:
    entries = [EmbeddingEntry(f"question {n} ü€", unit(n), "c1", {"arm": "warm"}) for n in range(3)]
    before = wall_ms()
    assert await stores.embeddings.put(scope, "f1", entries, MINUTE_MS) == ["applied"] * 3
    assert await stores.embeddings.put(scope, "f1", entries[:1], MINUTE_MS // 2) == ["resident"]
    assert await stores.embeddings.put(scope, "f1", [], MINUTE_MS) == []
    for entry in entries:
        vector = await stores.embeddings.get(scope, "f1", entry.text)
        assert vector is not None
        assert np.array_equal(vector, entry.vector)
        remaining = await stores.embeddings.remaining_ms(scope, "f1", entry.text)
        assert remaining is not None
        assert MINUTE_MS // 2 < remaining <= MINUTE_MS
    metadata = await stores.embeddings.metadata(scope, "f1", entries[0].text)
    assert metadata is not None
    expires = int(metadata.pop("expires_at_ms"))
    assert before + MINUTE_MS <= expires <= wall_ms() + MINUTE_MS
    assert metadata == {"source": "warmup", "fingerprint": "f1", "command_id": "c1", "arm": "warm"}


async def test_repeated_warm_up_prolongs_our_own_entry(stores: Stores, scope: str) -> None:
    entry = EmbeddingEntry("q", unit(1), "c1")
    await stores.embeddings.put(scope, "f1", [entry], MINUTE_MS)
    later = EmbeddingEntry("q", unit(2), "c2")
    assert await stores.embeddings.put(scope, "f1", [later], 10 * MINUTE_MS) == ["resident"]
    remaining = await stores.embeddings.remaining_ms(scope, "f1", "q")
    assert remaining is not None
    assert remaining > 9 * MINUTE_MS
    metadata = await stores.embeddings.metadata(scope, "f1", "q")
    assert metadata is not None
    assert metadata["command_id"] == "c2"
    vector = await stores.embeddings.get(scope, "f1", "q")
    assert vector is not None
    assert np.array_equal(vector, entry.vector)


async def test_absent_embedding_is_absent_in_every_way(stores: Stores, scope: str) -> None:
    assert await stores.embeddings.get(scope, "f1", "nobody") is None
    assert await stores.embeddings.metadata(scope, "f1", "nobody") is None
    assert await stores.embeddings.remaining_ms(scope, "f1", "nobody") is None
    assert await stores.embeddings.remove(scope, "f1", ["nobody"]) == 0


async def test_embedding_of_another_scope_or_encoder_is_out_of_reach(stores: Stores, scope: str) -> None:
    await stores.embeddings.put(scope, "f1", [EmbeddingEntry("q", unit(1))], MINUTE_MS)
    assert await stores.embeddings.get(scope, "f2", "q") is None
    assert await stores.embeddings.get(scope + ":", "f1", "q") is None


async def test_embedding_ends_and_can_be_removed(stores: Stores, scope: str) -> None:
    entries = [EmbeddingEntry("brief", unit(1)), EmbeddingEntry("removed", unit(2))]
    await stores.embeddings.put(scope, "f1", entries[:1], 100)
    await stores.embeddings.put(scope, "f1", entries[1:], MINUTE_MS)
    assert await stores.embeddings.remove(scope, "f1", ["removed", "nobody"]) == 1
    assert await stores.embeddings.get(scope, "f1", "removed") is None

    async def ended() -> bool:
        return await stores.embeddings.get(scope, "f1", "brief") is None

    await until(ended)
