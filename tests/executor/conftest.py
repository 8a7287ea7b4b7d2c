"""A whole executor in memory: broker, Redis and engines are fakes, so that every rule can be seen from outside."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connectors.engines.fake import FakeEngine
from connectors.kafka.fake import MemoryBroker, MemoryConsumer, MemoryProducer
from connectors.redis import fake
from connectors.redis.semantic_fake import MemorySemanticCache
from connectors.settings import RedisSettings
from executor.ports import Ports, wall_clock_ms
from executor.service import Executor
from executor.settings import EngineSettings, ExecutorSettings, ExecutorTree
from schemas import (
    Embedding,
    Policy,
    Prefix,
    Reason,
    Render,
    Replicas,
    Residency,
    Segment,
    WarmupCommand,
    WarmupOutcome,
    decode,
    encode,
    topics,
)
from schemas.canonical import command_id, embedding_key, prefix_key, query_sha256, root_hash, segment_hash

# Test modules are imported one by one without a package (--import-mode=importlib).
sys.path.insert(0, str(Path(__file__).parent))
from town import Town

SCOPE = "acme"
POOL = "gpu"
FINGERPRINT = "f" * 32


class World:
    """One broker, one Redis, two engines, and the executors that were started on them."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        for topic in topics.TOPICS:
            self.broker.add_topic(topic.name, topic.partitions_local)
        self.store = fake.MemoryStore()
        self.engines = {"r0": FakeEngine(), "r1": FakeEngine()}
        self.blobs = fake.MemoryBlobs(self.store)
        self.vectors = fake.MemoryVectors(self.store)
        self.producer = MemoryProducer(self.broker)
        self.embeddings = fake.MemoryEmbeddingCache(self.store, model_name="minilm")
        self.answers = MemorySemanticCache(self.store)
        self.values = fake.MemoryValues(self.store)
        self.executors: list[Executor] = []
        self.commands = 0

    def ports(self, **changes: Any) -> Ports:
        ports = {
            "consumer": lambda group: MemoryConsumer(self.broker, group),
            "producer": self.producer,
            "ledger": fake.MemoryLedger(self.store),
            "leases": fake.MemoryLeases(self.store, life_ms=1_000),
            "sweep_leases": fake.MemoryLeases(self.store, life_ms=1_000),
            "brakes": fake.MemoryBrakes(self.store),
            "blobs": fake.MemoryAsyncBlobs(self.store),
            "vectors": fake.MemoryAsyncVectors(self.store),
            "embeddings": self.embeddings,
            "answers": self.answers,
            "values": self.values,
            "engines": self.engines,
            **changes,
        }
        return Ports(**ports)

    async def start(self, ports: Ports | None = None, **settings: Any) -> Executor:
        engines = tuple(EngineSettings(name=name, url="http://unused", pool=POOL) for name in self.engines)
        values = {"lease_ms": 1_000, "backoff_ms": 1, "drain_s": 5, "telemetry_ms": 100, "readiness_probe": False}
        values = {**values, "engines": engines, **settings}
        tree = ExecutorTree(redis=RedisSettings(pool="main"), executor=ExecutorSettings(**values))
        executor = Executor(tree, ports or self.ports())
        self.executors.append(executor)
        await executor.begin()
        return executor

    async def stop(self) -> None:
        for executor in self.executors:
            await executor.drain()

    # -- what goes in --------------------------------------------------------------------------------------------------

    def prefix(self, *texts: str, scope: str = SCOPE, store: bool = True, **fields: Any) -> Prefix:
        """A prefix of messages, and its blobs."""
        render = fields.pop("render", Render(template_sha="t"))
        parent = root_hash("tiny", fields.get("adapter"), render.template_sha, render.tools_sha)
        segments, blobs = [], {}
        for index, text in enumerate(texts):
            role = "system" if index == 0 else "user"
            parent = segment_hash(parent, role, text)
            segments.append(Segment(hash=parent, tokens=len(text.split()) + 2, role=role))
            blobs[parent] = text.encode()
        if store:
            self.blobs.put(scope, blobs, 3_600_000)
        return Prefix(model="tiny", segments=tuple(segments), render=render, **fields)

    def warm(self, target: Prefix, **fields: Any) -> WarmupCommand:
        fields = {"replicas": Replicas(names=("r0",)), **fields}
        return self.command(target, prefix_key(target.segments[-1].hash), pool=POOL, **fields)

    def embed(self, query: str, vector: Any = None, store: bool = True, **fields: Any) -> WarmupCommand:
        sha = query_sha256(query)
        if store:
            self.vectors.put(SCOPE, FINGERPRINT, {sha: np.ones(4, np.float32) if vector is None else vector}, 60_000)
            self.blobs.put(SCOPE, {sha: query.encode()}, 60_000)
        target = Embedding(fingerprint=FINGERPRINT, query_sha256=sha)
        return self.command(target, embedding_key(FINGERPRINT, sha), pool="redis:main", **fields)

    def command(self, target: Any, target_key: str, **fields: Any) -> WarmupCommand:
        self.commands += 1
        now_ms = wall_clock_ms()
        scope, pool = fields.pop("scope", SCOPE), fields.pop("pool")
        action = fields.get("action", "warm")
        values = {
            "priority": 500,
            "lane": "tick",
            "issued_at_ms": now_ms,
            "not_before_ms": now_ms,
            "expires_at_ms": now_ms + 60_000,
            "reason": Reason(trigger="test"),
            "unit": "u",
            **fields,
        }
        identity = command_id(scope, pool, target_key, action, "1", self.commands, 0)
        return WarmupCommand(
            command_id=identity, scope=scope, tenant=scope, pool=pool, target=target, target_key=target_key, **values
        )

    def send(self, *commands: WarmupCommand) -> None:
        for command in commands:
            key = f"{command.pool} {command.target_key}".encode()
            self.producer.send(topics.COMMANDS.name, encode(command), key=key)

    def policy(self, section: str, version: int, scope: str = "*", **body: Any) -> None:
        policy = Policy(scope=scope, section=section, writer="test", version=version, at_ms=0, body=body)
        self.producer.send(topics.POLICY.name, encode(policy), key=f"{scope}/{section}/test".encode())

    # -- what comes out ------------------------------------------------------------------------------------------------

    def records(self, topic: topics.Topic) -> list[bytes]:
        return [
            record.value
            for place in self.broker.partitions(topic.name)
            for record in self.broker.logs[place]
            if record.value is not None
        ]

    def outcomes(self) -> list[WarmupOutcome]:
        return [decode(value, WarmupOutcome) for value in self.records(topics.OUTCOMES)]

    def residency(self, target_key: str) -> list[Residency]:
        found = [decode(value, Residency) for value in self.records(topics.RESIDENCY)]
        return sorted((state for state in found if state.target_key == target_key), key=lambda state: state.seq)

    async def outcome(self, command: WarmupCommand, replica: str | None = None) -> WarmupOutcome:
        """The outcome of a command, awaited."""
        found = await self.until(
            lambda: [
                outcome
                for outcome in self.outcomes()
                if outcome.command_id == command.command_id and replica in (None, outcome.replica)
            ]
        )
        return found[0]

    async def until(self, condition: Callable[[], Any], seconds: float = 60) -> Any:
        """Waits for a condition to hold and returns its value."""
        deadline = time.monotonic() + seconds
        while True:
            value = condition()
            if value:
                return value
            assert time.monotonic() < deadline, "waited in vain"
            await asyncio.sleep(0.01)

    def committed(self, group: str) -> dict[int, int]:
        return {place.partition: offset for place, offset in self.broker.group(group).committed.items()}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.stop()


@pytest.fixture(scope="module")
def town(kafka_bootstrap: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """Real services, one stack a test module; every command has content of its own."""
    town = Town(kafka_bootstrap, redis_url, tmp_path_factory.mktemp("town"))
    yield town
    town.close()
