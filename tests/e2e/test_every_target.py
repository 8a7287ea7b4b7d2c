"""Every target, from an event in Kafka to what is seen from outside, each through the whole path."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from connectors.redis.keys import cached_value_key, embedding_cache_name, semantic_cache_name
from connectors.redis.semantic_layout import filterable_fields
from schemas import Announcement, Embedding, Policy, Render, RequestEvent, Response, RewardEvent, Segment, encode
from schemas.announcement import announcement_id
from schemas.canonical import adapter_name, h128, query_sha256, root_hash, segment_hash
from schemas.topics import ANNOUNCEMENTS, POLICY, REWARDS
from stoker.demo.announced import LOADER, write_weights
from tests.e2e.asking import LIFE_MS, MODEL, POOL, TEMPLATE
from tests.e2e.whole import PATIENCE_S, Whole
from tests.jobs.deployment import now_ms

pytestmark = [pytest.mark.service, pytest.mark.slow]

SCOPE = "shop"


class Story:
    """One tenant's day: what it announces, what is asked, and how the answer is judged."""

    def __init__(self, whole: Whole) -> None:
        self.whole = whole
        self.name = uuid.uuid4().hex[:8]
        self.query = f"where is my card {self.name}?"
        self.answer = f"In your letter box {self.name}."

    def everyone_is_warmed(self) -> None:
        """Without a hold-out: each target is looked for, not most of them."""
        at_ms = now_ms()
        policy = Policy(
            scope="*", section="experiment", writer=self.name, version=1, at_ms=at_ms, body={"hold_share": 0}
        )
        self.whole.job.send(encode(policy), POLICY, at_ms, key=f"*/experiment/{self.name}".encode())
        self.whole.job.flush()

    def announce(self, kind: Any, name: str, pool: str = POOL, **more: Any) -> None:
        """A change that takes effect now."""
        at_ms = now_ms()
        message = Announcement(
            announcement_id=announcement_id(SCOPE, pool, kind, name, "1", at_ms),
            scope=SCOPE,
            pool=pool,
            kind=kind,
            name=name,
            version="1",
            announced_at_ms=at_ms,
            at_ms=at_ms,
            **more,
        )
        self.whole.job.send(encode(message), ANNOUNCEMENTS, at_ms, key=SCOPE.encode())
        self.whole.job.flush()

    def ask(self, user: str) -> None:
        """Both events of a request whose answer lies among the scope's blobs."""
        at_ms, request = now_ms(), f"{self.name}-{uuid.uuid4().hex[:6]}"
        common: dict[str, Any] = {
            "request_id": request, "occurred_at_ms": at_ms, "tenant": SCOPE, "user": user, "pool": POOL, "model": MODEL,
            "query": self.query,
        }  # fmt: skip
        started = RequestEvent(event_id=f"{request}-started", phase="started", **common)
        finished = RequestEvent(
            event_id=f"{request}-finished",
            phase="finished",
            completed_at_ms=at_ms,
            status=200,
            finish_reason="stop",
            response_sha256=h128(self.answer),
            response_ref=h128(self.answer),
            **common,
        )
        self.whole.town.blobs.put(SCOPE, {h128(self.answer): self.answer.encode()}, LIFE_MS)
        for event in (started, finished):
            self.whole.job.send(encode(event), at_ms=at_ms)
        reward = RewardEvent(
            event_id=f"{request}-judged",
            occurred_at_ms=at_ms,
            tenant=SCOPE,
            query_sha256=query_sha256(self.query),
            response_sha256=h128(self.answer),
            reward=0.95,
            source="judge",
            reward_model_version="1",
        )
        self.whole.job.send(encode(reward), REWARDS, at_ms)
        self.whole.job.flush()

    def commanded(self, kind: type) -> Any:
        """The target of this story's command of a kind; None while there is none."""
        for command in self.whole.job.outputs.commands.values():
            target = command.target
            if isinstance(target, kind) and getattr(target, "query_sha256", None) == query_sha256(self.query):
                return target
        return None

    def seen(self, there: Callable[[], bool], what: str) -> None:
        """Waits until something is there."""
        self.whole.job.wait(there, what, PATIENCE_S)


@pytest.fixture
def story(whole: Whole) -> Story:
    made = Story(whole)
    made.everyone_is_warmed()
    return made


def test_an_announced_prompt_is_cached_on_every_replica(story: Story) -> None:
    town = story.whole.town
    text = " ".join(f"{story.name}word{number}" for number in range(80))
    segment = Segment(segment_hash(root_hash(MODEL, None, TEMPLATE, ""), "system", text), 80, "system")
    town.blobs.put(SCOPE, {segment.hash: text.encode()}, LIFE_MS)
    story.announce("prompt", f"desk-{story.name}", model=MODEL, segments=(segment,), render=Render(TEMPLATE))
    story.seen(
        lambda: sum(prefix_of(told, segment.hash) for told in story.whole.job.outputs.outcomes.values()) == 2,
        "the prompt on both replicas",
    )
    body = {"model": MODEL, "max_tokens": 1, "messages": [{"role": "system", "content": text}]}
    for engine in town.engines.values():
        answer = httpx.post(f"{engine.config.url}/v1/chat/completions", json=body, timeout=60, trust_env=False).json()
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= 64


def prefix_of(told: list[Any], segment: str) -> bool:
    return told[-1].target_key == f"prefix:{segment}" and told[-1].status == "applied"


def test_an_announced_adapter_is_listed_by_every_engine(story: Story, tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    write_weights(folder)
    (weights,) = folder.glob("*.safetensors")
    story.announce(
        "adapter", f"a{story.name}", source=str(folder), rank=8, sha256=hashlib.sha256(weights.read_bytes()).hexdigest()
    )
    wanted = adapter_name(f"a{story.name}", "1")

    def listed() -> bool:
        pages = [
            httpx.get(f"{engine.config.url}/v1/models", timeout=60, trust_env=False).json()
            for engine in story.whole.town.engines.values()
        ]
        return all(wanted in {model["id"] for model in page["data"]} for page in pages)

    story.seen(listed, "the adapter on both engines")


def test_the_values_of_an_announced_event_are_in_redis_for_their_time(story: Story) -> None:
    client = redis.Redis.from_url(story.whole.town.redis_url)
    key = cached_value_key(SCOPE, "sku:7")
    client.delete(key)
    pool = story.whole.job.settings.redis.pool_key
    story.announce("event", f"sale-{story.name}", pool, keys=("sku:7",), loader=LOADER, ttl_ms=600_000)
    story.seen(lambda: client.exists(key) == 1, "the value")
    assert client.get(key) == b"7.99"
    assert 0 < client.pttl(key) <= 600_000


def test_a_new_model_is_probed_on_every_replica(story: Story) -> None:
    story.announce("model", MODEL)

    def probed() -> bool:
        told = story.whole.job.outputs.outcomes.values()
        return {outcomes[-1].replica for outcomes in told if outcomes[-1].target_key.startswith("model:")} == set(
            story.whole.town.engines
        )

    story.seen(probed, "a probe of both replicas")


def test_a_query_seen_twice_and_judged_well_is_hit_by_redisvls_own_clients(story: Story) -> None:
    from redisvl.extensions.cache.embeddings import EmbeddingsCache
    from redisvl.extensions.cache.llm import SemanticCache
    from redisvl.utils.vectorize import CustomVectorizer

    asked = 0

    def ask_on(kind: type) -> bool:
        nonlocal asked
        asked += 1
        story.ask(f"user-{asked}")
        return story.commanded(kind) is not None

    story.seen(lambda: ask_on(Embedding), "a command for the embedding")
    story.seen(lambda: ask_on(Response), "a command for the response")
    url = story.whole.town.redis_url
    target = story.commanded(Response)
    embeddings = EmbeddingsCache(name=embedding_cache_name(SCOPE, target.fingerprint), redis_url=url)
    reader_of = story.whole.job.settings.encoder.model_name

    def vector() -> Any:
        found = embeddings.get(content=story.query, model_name=reader_of)
        return None if found is None else found["embedding"]

    story.seen(lambda: vector() is not None, "the embedding in RedisVL's cache")
    known = vector()
    gateway = SemanticCache(
        name=semantic_cache_name(SCOPE, target.cache, target.fingerprint),
        redis_url=url,
        vectorizer=CustomVectorizer(embed=lambda _text, **_: known),
        filterable_fields=filterable_fields(),
    )
    story.seen(lambda: bool(gateway.check(prompt=story.query)), "the answer in RedisVL's cache")
    (hit,) = gateway.check(prompt=story.query)
    assert (hit["prompt"], hit["response"]) == (story.query, story.answer)
