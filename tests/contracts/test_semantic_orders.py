"""Decisions about answers come in any order; what they leave behind obeys the later ones, in memory as in Redis."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.redis import Answer, CacheName, RedisSemanticCache, SemanticCache, async_client
from connectors.redis.fake import MemoryStore
from connectors.redis.semantic_fake import MemorySemanticCache
from connectors.settings import RedisSettings
from schemas.canonical import h128, query_sha256

PROMPT = "Where is my card?"
VECTOR = np.asarray([1, 0, 0, 0], np.float32)
BEGUN_MS = time.time_ns() // 1_000_000
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Warm:
    at_ms: int
    response: str
    model: str
    version: str

    @property
    def answer(self) -> Answer:
        end = BEGUN_MS + HOUR_MS + self.at_ms
        return Answer(PROMPT, self.response, VECTOR, end, self.at_ms, self.model, semantic_version=self.version)


@dataclass(frozen=True)
class Revoke:
    at_ms: int
    response: str | None

    def hits(self, response: str, decided_ms: int) -> bool:
        return decided_ms <= self.at_ms and self.response in (None, response)


TIMES = st.integers(1, 6)
WARMS = st.builds(Warm, TIMES, st.sampled_from("ab"), st.sampled_from("mn"), st.sampled_from(["", "2"]))
REVOKES = st.builds(Revoke, TIMES, st.sampled_from(["a", "b", None]))
STEPS = st.lists(st.one_of(WARMS, WARMS, REVOKES), max_size=12)
Held = set[tuple[str, str, str, int, int]]


async def run(cache: SemanticCache, steps: list[Warm | Revoke]) -> list[tuple[object, Held]]:
    """What each step returned, and what was held after it."""
    name, told = CacheName(f"s{uuid.uuid4().hex}", "faq", "f" * 32), []
    for step in steps:
        if isinstance(step, Warm):
            result: object = await cache.put(name, step.answer)
        else:
            sha = None if step.response is None else h128(step.response)
            result = await cache.revoke(name, query_sha256(PROMPT), step.at_ms, sha)
        found = await cache.find(name, query_sha256(PROMPT))
        held = {
            (e.response, e.fields["model"], e.fields.get("semantic_version", ""), e.issued_at_ms, e.until_ms or 0)
            for e in found
        }
        assert len(held) == len(found)
        told.append((result, held))
    return told


@settings(deadline=None)
@given(STEPS)
def test_later_decisions_hold_whatever_comes_first(steps: list[Warm | Revoke]) -> None:
    told = asyncio.run(run(MemorySemanticCache(MemoryStore()), steps))
    for number, (_, held) in enumerate(told):
        past = steps[: number + 1]
        models = [model for _, model, *_ in held]
        assert len(models) == len(set(models)), "one answer to a query by a model"
        for response, model, _, decided_ms, _ in held:
            assert not any(s.hits(response, decided_ms) for s in past if isinstance(s, Revoke)), (
                "a revoked answer is back"
            )
            if not any(isinstance(step, Revoke) for step in past):
                assert decided_ms == max(s.at_ms for s in past if isinstance(s, Warm) and s.model == model)


@pytest.mark.service
def test_memory_and_redis_agree_on_every_step(redis_url: str) -> None:
    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(STEPS)
    def agree(steps: list[Warm | Revoke]) -> None:
        async def both() -> None:
            client = async_client(RedisSettings(url=redis_url))
            real = await run(RedisSemanticCache(client, now_ms=lambda: BEGUN_MS), steps)
            await client.aclose()
            assert real == await run(MemorySemanticCache(MemoryStore()), steps)

        asyncio.run(both())

    agree()
