"""The KV tier port's contract, for the fake node and a real LMCache.

STOKER_LMCACHE_URL is a node started by `tests/connectors/tiers/real_node.py`, with IsolatedLRU off and an L2 adapter
(docs/engines.md, LMCache). Every test makes its own prompts, so a node may be used again.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import httpx
import pytest
import pytest_asyncio

from connectors.engines import Salt
from connectors.tiers import Fetched, LmcacheNode
from connectors.tiers.fake import FakeNode
from schemas.errors import TransientFault

URL = os.environ.get("STOKER_LMCACHE_URL")
MODEL = "/models/contract"
CHUNK = 256


@dataclass
class Target:
    """A node under test, and the engine beside it."""

    tier: LmcacheNode
    fake: FakeNode | None

    async def store(self, ids: Sequence[int], salt: str = "") -> None:
        """What an engine has computed, and host memory has let go of."""
        if self.fake is not None:
            self.fake.store(MODEL, ids, salt)
            return
        body = {"model_name": MODEL, "world_size": 1, "token_ids": list(ids), "cache_salt": salt}
        async with httpx.AsyncClient(base_url=URL or "", trust_env=False) as client:
            (await client.post("/recording/store", json=body)).raise_for_status()
            await asyncio.sleep(2)
            (await client.post("/cache/clear", json={"tier": "l1", "force": True})).raise_for_status()


@pytest_asyncio.fixture(params=["fake", *(["lmcache"] if URL else [])])
async def target(request: pytest.FixtureRequest) -> AsyncIterator[Target]:
    if request.param == "fake":
        fake = FakeNode()
        fake.register(MODEL)
        made = Target(LmcacheNode("http://node", transport=fake), fake)
    else:
        assert URL is not None
        async with httpx.AsyncClient(base_url=URL, trust_env=False) as client:
            await client.post("/recording/register", json={"model_name": MODEL, "world_size": 1})
        made = Target(LmcacheNode(URL), None)
    yield made
    await made.tier.close()


def ids(count: int) -> list[int]:
    return [random.SystemRandom().randrange(300, 4000) for _ in range(count)]


async def test_a_stored_prompt_is_fetched_by_its_full_chunks(target: Target) -> None:
    prompt = ids(2 * CHUNK + 100)
    await target.store(prompt)
    assert await target.tier.fetch(MODEL, prompt, None, timeout_s=30) == Fetched(whole=True, tokens=2 * CHUNK)
    again = await target.tier.fetch(MODEL, prompt, None, timeout_s=30)
    assert again == Fetched(whole=True, tokens=2 * CHUNK)


async def test_what_was_never_stored_is_missing(target: Target) -> None:
    assert await target.tier.fetch(MODEL, ids(CHUNK), None, timeout_s=30) == Fetched(whole=False, missing=True)


async def test_a_longer_prompt_is_not_whole(target: Target) -> None:
    prompt = ids(2 * CHUNK)
    await target.store(prompt)
    longer = await target.tier.fetch(MODEL, prompt + ids(CHUNK), None, timeout_s=30)
    assert longer == Fetched(whole=False, missing=True)


async def test_a_prompt_below_a_chunk_is_nothing_to_a_tier(target: Target) -> None:
    assert await target.tier.fetch(MODEL, ids(CHUNK - 1), None, timeout_s=30) == Fetched(whole=False)


async def test_each_salt_has_prompts_of_its_own(target: Target) -> None:
    prompt = ids(CHUNK)
    await target.store(prompt, "salt-of-acme")
    for other in (None, Salt("salt-of-zeta")):
        assert not (await target.tier.fetch(MODEL, prompt, other, timeout_s=30)).whole
    assert (await target.tier.fetch(MODEL, prompt, Salt("salt-of-acme"), timeout_s=30)).whole


async def test_a_model_that_no_engine_brought_may_come_yet(target: Target) -> None:
    with pytest.raises(TransientFault, match="no such model with a world size of 1"):
        await target.tier.fetch("/models/unheard", ids(CHUNK), None, timeout_s=30)


async def test_many_fetches_at_once_each_get_their_own_result(target: Target) -> None:
    stored = [ids(CHUNK) for _ in range(3)]
    for prompt in stored:
        await target.store(prompt)
    asked = [*stored, *(ids(CHUNK) for _ in range(3))]
    found = await asyncio.gather(*(target.tier.fetch(MODEL, prompt, None, timeout_s=60) for prompt in asked))
    assert [each.whole for each in found] == [True] * 3 + [False] * 3
