"""Every target, from an event in Kafka to what is seen from outside, each through the whole path."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from msgspec import structs

from connectors.redis.keys import cached_value_key, embedding_cache_name, semantic_cache_name
from connectors.redis.semantic_layout import filterable_fields
from schemas import (
    Announcement,
    Cancel,
    Embedding,
    OutcomeReason,
    Policy,
    Render,
    RequestEvent,
    Response,
    RewardEvent,
    Segment,
    WarmupCommand,
    WarmupOutcome,
    encode,
)
from schemas.announcement import announcement_id
from schemas.canonical import adapter_name, h128, prefix_key, query_sha256, root_hash, segment_hash
from schemas.topics import ANNOUNCEMENTS, POLICY, REWARDS
from stoker.demo.announced import LOADER, write_weights
from stoker.stack.engines import Engine
from tests.e2e.asking import LIFE_MS, MODEL, POOL, TEMPLATE
from tests.e2e.whole import BLOCK_TOKENS, PATIENCE_S, Whole
from tests.jobs.deployment import now_ms

pytestmark = [pytest.mark.service, pytest.mark.slow]

SCOPE = "shop"
BUSY_TOKENS = 100_000
"""At 2 ms a token this keeps an engine for more than three minutes."""
TAKES_EFFECT_IN_MS = 240_000
"""Less than the longest lead of a prompt at the tests' time scale: it is due at once, and in time for a while."""


class Story:
    """One tenant's day: what it announces, what is asked, and how the answer is judged."""

    def __init__(self, whole: Whole) -> None:
        self.whole = whole
        self.name = uuid.uuid4().hex[:8]
        self.query = f"where is my card {self.name}?"
        self.answer = f"In your letter box {self.name}."

    def everyone_is_warmed(self) -> None:
        """Without a hold-out: each target is looked for, not most of them."""
        self.set_policy("experiment", hold_share=0)

    def set_policy(self, section: str, **body: Any) -> None:
        """Of every scope."""
        at_ms = now_ms()
        policy = Policy(scope="*", section=section, writer=self.name, version=1, at_ms=at_ms, body=body)
        self.whole.job.send(encode(policy), POLICY, at_ms, key=f"*/{section}/{self.name}".encode())
        self.whole.job.flush()

    def announce(
        self, kind: Any, name: str, pool: str = POOL, version: str = "1", in_ms: int = 0, **more: Any
    ) -> Announcement:
        """A change that takes effect now, or in a while."""
        at_ms = now_ms()
        message = Announcement(
            announcement_id=announcement_id(SCOPE, pool, kind, name, version, at_ms + in_ms),
            scope=SCOPE,
            pool=pool,
            kind=kind,
            name=name,
            version=version,
            announced_at_ms=at_ms,
            at_ms=at_ms + in_ms,
            **more,
        )
        self.tell(message)
        return message

    def tell(self, message: Announcement) -> None:
        """An announcement as it is."""
        self.whole.job.send(encode(message), ANNOUNCEMENTS, message.announced_at_ms, key=SCOPE.encode())
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
    whole, version = story.whole, story.name
    story.announce("model", MODEL, version=version)

    def probes() -> dict[str, WarmupOutcome]:
        """The last outcome of this change's probe on each replica."""
        sent = {name for name, each in whole.job.outputs.commands.items() if each.content_version == version}
        told = (outcomes[-1] for outcomes in whole.job.outputs.outcomes.values())
        return {o.replica: o for o in told if o.command_id in sent and o.action == "probe" and o.status == "applied"}

    story.seen(lambda: probes().keys() == whole.town.engines.keys(), "a probe of both replicas")
    asked = whole.requests()
    for replica, outcome in probes().items():
        assert (outcome.target_key, outcome.reason) == (f"model:{replica}", OutcomeReason.DONE)
        (entry,) = asked[replica, f"probe-{outcome.command_id}"]
        assert entry["prompt_tokens"] < BLOCK_TOKENS


def test_what_was_announced_and_taken_back_is_cancelled_at_engines_that_are_busy(story: Story) -> None:
    whole, town = story.whole, story.whole.town
    text = " ".join(f"{story.name}never{number}" for number in range(80))
    segment = Segment(segment_hash(root_hash(MODEL, None, TEMPLATE, ""), "system", text), 80, "system")
    town.blobs.put(SCOPE, {segment.hash: text.encode()}, LIFE_MS)
    key = prefix_key(segment.hash)
    story.set_policy("schedule", prefix_lead_ms=3_600_000)
    with busy(town.engines.values(), story.name):
        told = story.announce(
            "prompt",
            f"gone-{story.name}",
            in_ms=TAKES_EFFECT_IN_MS,
            model=MODEL,
            segments=(segment,),
            render=Render(TEMPLATE),
        )
        commands = whole.job.outputs.commands
        story.seen(lambda: any(each.target_key == key for each in commands.values()), "the prompt's command")
        story.tell(structs.replace(told, deleted=True, announced_at_ms=now_ms()))

        def cancels() -> list[WarmupCommand]:
            return [
                each
                for each in commands.values()
                if isinstance(each.target, Cancel)
                and any(commands[name].target_key == key for name in each.target.command_ids)
            ]

        story.seen(lambda: len(cancels()) == 1, "a Cancel")
        (cancel,) = cancels()
        (name,) = cancel.target.command_ids

        def ended(command: str) -> dict[str, tuple[str, OutcomeReason]]:
            told = (outcomes[-1] for outcomes in whole.job.outputs.outcomes.values())
            return {o.replica: (o.status, o.reason) for o in told if o.command_id == command}

        story.seen(lambda: len(ended(name)) == len(town.engines) and bool(ended(cancel.command_id)), "their outcomes")
        assert ended(name) == dict.fromkeys(town.engines, ("cancelled", OutcomeReason.CANCELLED))
        assert ended(cancel.command_id) == {cancel.pool: ("applied", OutcomeReason.DONE)}
    made = whole.requests()
    assert all(entry["created_tokens"] == 0 for replica in town.engines for entry in made.get((replica, name), ()))


@contextmanager
def busy(engines: Iterable[Engine], name: str) -> Iterator[None]:
    """Each engine prefills a prompt that takes minutes, and nothing behind it, while the block runs."""
    text = " ".join(f"{name}busy{number}" for number in range(BUSY_TOKENS))
    body = json.dumps({"model": MODEL, "max_tokens": 1, "prompt": text})
    with ExitStack() as stack:
        for engine in engines:
            url = httpx.URL(engine.config.url)
            connection = stack.enter_context(closing(HTTPConnection(url.host, url.port, timeout=60)))
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        yield


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
