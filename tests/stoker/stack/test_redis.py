from __future__ import annotations

import pytest
import redis

from stoker.stack.redis import Redis

pytestmark = pytest.mark.service


def test_search_json_and_bloom_are_there(redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url)
    client.execute_command(
        "FT.CREATE",
        "stack-test",
        "SCHEMA",
        "v",
        "VECTOR",
        "HNSW",
        "6",
        "TYPE",
        "FLOAT32",
        "DIM",
        "4",
        "DISTANCE_METRIC",
        "COSINE",
    )
    assert client.execute_command("BF.ADD", "stack-test:bloom", "x") == 1
    assert client.execute_command("JSON.SET", "stack-test:json", "$", "{}") in (b"OK", True)
    client.close()


def test_writes_survive_a_killed_server_once_synced(redis_server: Redis) -> None:
    client = redis.Redis.from_url(redis_server.url)
    client.set("stack-test:kept", "yes")
    client.execute_command("WAITAOF", 1, 0, 5000)
    client.close()
    redis_server.process.kill()
    redis_server.start()
    with redis.Redis.from_url(redis_server.url) as again:
        assert again.get("stack-test:kept") == b"yes"
