"""Queries become vectors in Redis; what Redis does not take is dropped."""

from __future__ import annotations

from collections.abc import Mapping

from analytics.envelopes import EmbedRequest
from connectors.encoders.fake import FakeEncoder
from connectors.redis.base import Vector
from connectors.redis.fake import MemoryBlobs, MemoryStore, MemoryVectors
from jobs.embedding import PAUSE_MS, EmbedConfig, Embedder
from schemas import TransientFault

CONFIG = EmbedConfig(batch=16, wait_ms=10, life_ms=60_000, stale_ms=5_000)


class BrokenVectors(MemoryVectors):
    """Redis is down while `broken`."""

    broken = True
    calls = 0

    def put(self, scope: str, fingerprint: str, vectors: Mapping[str, Vector], ttl_ms: int) -> None:
        self.calls += 1
        if self.broken:
            raise TransientFault("no Redis")
        super().put(scope, fingerprint, vectors, ttl_ms)


def request(scope: str, query: str, text: str | None = None) -> EmbedRequest:
    return EmbedRequest(scope, query, text or f"text of {query}", 1_000, "second_sight")


def test_text_and_vector_of_each_query_lie_in_its_own_scope() -> None:
    store, encoder = MemoryStore(), FakeEncoder()
    embedder = Embedder(CONFIG, encoder, MemoryVectors(store), MemoryBlobs(store))
    done = embedder.embed([request("a", "q1"), request("b", "q1", "another text"), request("a", "q2")], now_ms=0)
    assert {(each.scope, each.query, each.text_bytes) for each, _ in done} == {
        ("a", "q1", 10),
        ("a", "q2", 10),
        ("b", "q1", 12),
    }
    assert {each.fingerprint for each, _ in done} == {encoder.fingerprint}
    for each, told in done:
        assert (told.scope, told.query, told.fingerprint, told.at_ms) == (
            each.scope,
            each.query,
            each.fingerprint,
            1_000,
        )
    vectors = MemoryVectors(store)
    first = vectors.get("a", encoder.fingerprint, ["q1", "q2"])
    assert set(first) == {"q1", "q2"}
    assert (first["q1"] == encoder.encode(["text of q1"])[0]).all()
    assert (vectors.get("b", encoder.fingerprint, ["q1"])["q1"] == encoder.encode(["another text"])[0]).all()
    assert MemoryBlobs(store).get("b", ["q1"]) == {"q1": b"another text"}
    told = {(vector.scope, vector.query): vector.vector for _, vector in done}
    assert told["b", "q1"] == encoder.encode(["another text"])[0].astype("<f4").tobytes()


def test_a_query_asked_for_twice_is_encoded_once() -> None:
    store, encoder = MemoryStore(), FakeEncoder()
    embedder = Embedder(CONFIG, encoder, MemoryVectors(store), MemoryBlobs(store))
    assert len(embedder.embed([request("a", "q"), request("a", "q")], now_ms=0)) == 1
    assert len(embedder.embed([request("a", "q")], now_ms=5)) == 1
    assert encoder.texts_encoded == 1


def test_a_redis_that_is_down_costs_one_attempt_and_then_a_pause() -> None:
    store = MemoryStore()
    vectors = BrokenVectors(store)
    embedder = Embedder(CONFIG, FakeEncoder(), vectors, MemoryBlobs(store))
    assert embedder.embed([request("a", "q1")], now_ms=0) == []
    vectors.broken = False
    assert embedder.embed([request("a", "q2")], now_ms=PAUSE_MS - 1) == []
    assert vectors.calls == 1
    assert len(embedder.embed([request("a", "q3")], now_ms=PAUSE_MS)) == 1


def test_a_query_waits_for_a_tenth_of_its_age_between_the_bounds() -> None:
    assert [CONFIG.patience_ms(age_ms) for age_ms in (-50, 0, 100, 1_000, 4_999, 5_001, 10**9)] == [
        10, 10, 10, 100, 499, 500, 500,
    ]  # fmt: skip


def test_a_request_that_waited_too_long_is_dropped_without_a_model_call() -> None:
    store, encoder = MemoryStore(), FakeEncoder()
    embedder = Embedder(CONFIG, encoder, MemoryVectors(store), MemoryBlobs(store))
    assert embedder.embed([request("a", "q")], now_ms=1_000 + CONFIG.stale_ms + 1) == []
    assert encoder.texts_encoded == 0
    assert len(embedder.embed([request("a", "q")], now_ms=1_000 + CONFIG.stale_ms)) == 1
