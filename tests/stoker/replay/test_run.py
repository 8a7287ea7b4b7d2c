"""A workload through the real stack: simulators answer, Redis has the texts, Kafka the events."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from analytics.scopes import ScopeMap
from connectors.kafka import KafkaRecordConsumer
from connectors.redis import RedisBlobs, sync_client
from connectors.settings import KafkaSettings, RedisSettings
from schemas import BrokenConfiguration, RequestEvent, decode
from schemas.topics import REQUESTS
from stoker.commands.replay import parse_engines
from stoker.replay.run import Place, replay
from stoker.replay.sources import Workload
from stoker.stack.topics import create_topics


@pytest.fixture
def engines() -> Iterator[dict[str, str]]:
    """Two simulators with small pools."""
    processes = []
    found = {}
    try:
        for name in ("r0", "r1"):
            command = [sys.executable, "-m", "stoker.simulator", "--name", name, "--port", "0", "--num-blocks", "4000"]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            processes.append(process)
            assert process.stdout is not None
            found[name] = json.loads(process.stdout.readline())["url"]
        yield found
    finally:
        for process in processes:
            process.terminate()
            process.wait(10)
            assert process.stdout is not None
            process.stdout.close()


def place_at(kafka_bootstrap: str, redis_url: str, prefix: str, engines: dict[str, str]) -> Place:
    create_topics(kafka_bootstrap, prefix, [REQUESTS])
    return Place(
        kafka=KafkaSettings(bootstrap=kafka_bootstrap, topic_prefix=prefix),
        redis=RedisSettings(url=redis_url),
        scopes=ScopeMap(unknown="own"),
        pool="gpu",
        model="tiny",
        engines=engines,
    )


def events_of(place: Place) -> list[RequestEvent]:
    consumer = KafkaRecordConsumer(place.kafka)
    try:
        records = consumer.read_to_end(place.kafka.topic(REQUESTS))
        return [decode(record.value or b"", RequestEvent) for record in records]
    finally:
        consumer.close()


@pytest.mark.service
async def test_generated_requests_arrive_as_pairs_of_events_and_their_texts_in_redis(
    kafka_bootstrap: str, redis_url: str, engines: dict[str, str]
) -> None:
    workload = Workload("generated", minutes=0.1, seed=3)
    place = place_at(kafka_bootstrap, redis_url, "replay-generated.", engines)
    told: list[str] = []
    gateway = await replay(place, workload.turns(), told.append)
    turns = list(workload.turns())
    assert gateway.requests == len(turns) > 50
    assert gateway.failed == 0
    assert gateway.estimated_counts == 0
    assert told

    events = events_of(place)
    assert Counter(event.phase for event in events) == {"started": len(turns), "finished": len(turns)}
    assert len({event.event_id for event in events}) == len(events)
    ends = [event for event in events if event.phase == "finished"]
    assert all(event.status == 200 and event.ttft_ms is not None for event in ends)
    # The engine's own count of the prompt is that of the segments and one token that opens the answer.
    assert all(event.input_tokens == sum(segment.tokens for segment in event.segments) + 1 for event in ends)
    assert sum(event.cache.kv_cached_tokens or 0 for event in ends if event.cache) > 0

    redis = sync_client(RedisSettings(url=redis_url))
    try:
        blobs = RedisBlobs(redis)
        for event in ends:
            texts = blobs.get(event.tenant, [segment.hash for segment in event.segments])
            assert len(texts) == (0 if event.tenant == "clinic" else len(event.segments))
    finally:
        redis.close()


@pytest.mark.service
async def test_a_trace_hits_the_prefixes_that_it_shares(
    kafka_bootstrap: str, redis_url: str, engines: dict[str, str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": k * 20, "input_length": 2_100, "output_length": 4, "hash_ids": [0, 1, 2, 3, 10 + k]}
        for k in range(40)
    ]
    trace.write_text("\n".join(map(json.dumps, lines)))
    workload = Workload("mooncake", trace, block_tokens=32)
    place = place_at(kafka_bootstrap, redis_url, "replay-mooncake.", engines)
    gateway = await replay(place, workload.turns(), lambda _line: None)
    assert (gateway.requests, gateway.failed) == (40, 0)
    ends = [event for event in events_of(place) if event.phase == "finished"]
    hits = sum(event.cache is not None and event.cache.kv_cached_tokens == 128 for event in ends)
    assert hits >= 38, "all but the first on each replica find the four shared blocks"


def test_a_workload_that_cannot_be_is_explained(tmp_path: Path) -> None:
    for wrong, told in (
        (Workload("generated"), "--minutes"),
        (Workload("mooncake"), "--input"),
        (Workload("generated", minutes=-1), "positive"),
        (Workload("azure", tmp_path / "none.csv"), "cannot be read"),
    ):
        with pytest.raises(BrokenConfiguration, match=told):
            next(wrong.turns())


def test_engines_are_named_by_pairs() -> None:
    assert parse_engines("a=http://x:1/, b=http://y") == {"a": "http://x:1", "b": "http://y"}
    for wrong in ("http://x", "a=x", "a=http://x,a=http://y"):
        with pytest.raises(BrokenConfiguration, match="--engines"):
            parse_engines(wrong)
