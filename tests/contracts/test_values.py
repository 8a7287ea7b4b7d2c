"""One suite for the store of business values, in memory and on a real Redis."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from connectors.redis import RedisValues, Values, async_client
from connectors.redis.fake import MemoryStore, MemoryValues
from connectors.settings import RedisSettings


@pytest_asyncio.fixture(params=["fake", pytest.param("real", marks=pytest.mark.service)])
async def values(request: pytest.FixtureRequest) -> AsyncIterator[Values]:
    if request.param == "fake":
        yield MemoryValues(MemoryStore())
        return
    client = async_client(RedisSettings(url=request.getfixturevalue("redis_url")))
    yield RedisValues(client)
    await client.aclose()


@pytest.fixture
def scope() -> str:
    return f"t{uuid.uuid4().hex[:8]}:{{a}}*[b] %3A/ü"


async def test_values_are_read_as_they_were_put_and_end(values: Values, scope: str) -> None:
    stored = {"sku:1": b"12.50", "sku:1:x": b"", "*": b"\0\xff"}
    await values.put(scope, stored, 60_000)
    await values.put(scope, {}, 60_000)
    assert await values.get(scope, [*stored, "none"]) == stored
    assert await values.get(scope, []) == {}
    left = await values.remaining_ms(scope, "sku:1")
    assert left is not None
    assert 0 < left <= 60_000
    assert await values.remaining_ms(scope, "none") is None


async def test_a_value_is_replaced_and_its_life_begins_anew(values: Values, scope: str) -> None:
    await values.put(scope, {"k": b"old"}, 60_000)
    await values.put(scope, {"k": b"new"}, 200)
    assert await values.get(scope, ["k"]) == {"k": b"new"}
    deadline = time.monotonic() + 30
    while await values.get(scope, ["k"]):
        assert time.monotonic() < deadline


async def test_no_scope_reads_anothers_values(values: Values, scope: str) -> None:
    await values.put(scope, {"k": b"mine"}, 60_000)
    for other in (scope + ":", scope.replace(":", "%3A"), scope[:-1], "*", scope.upper()):
        assert await values.get(other, ["k"]) == {}
