"""One suite for what executors tell each other of brakes, in memory and on a real Redis."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from connectors.redis import Brakes, RedisBrakes, async_client
from connectors.redis.fake import MemoryBrakes, MemoryStore
from connectors.settings import RedisSettings


@pytest_asyncio.fixture(params=["fake", pytest.param("real", marks=pytest.mark.service)])
async def brakes(request: pytest.FixtureRequest) -> AsyncIterator[Brakes]:
    if request.param == "fake":
        yield MemoryBrakes(MemoryStore())
        return
    client = async_client(RedisSettings(url=request.getfixturevalue("redis_url")))
    yield RedisBrakes(client)
    await client.aclose()


async def test_what_is_told_of_a_replica_is_heard_replaced_and_ends(brakes: Brakes) -> None:
    one, other = (f"r:{uuid.uuid4().hex} {{a}}*{number}" for number in range(2))
    await brakes.tell({one: b"\0open", other: b""}, 60_000)
    await brakes.tell({}, 60_000)
    assert await brakes.told([one, other, f"{one}x"]) == {one: b"\0open", other: b""}
    assert await brakes.told([]) == {}
    await brakes.tell({one: b"closed"}, 200)
    assert await brakes.told([one]) == {one: b"closed"}
    deadline = time.monotonic() + 30
    while await brakes.told([one]):
        assert time.monotonic() < deadline
    assert await brakes.told([one, other]) == {other: b""}
