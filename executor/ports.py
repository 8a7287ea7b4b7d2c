"""The outside of one executor, in one place: what a test replaces by fakes."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from connectors.discovery import Discovery, FoundReplicas
from connectors.engines.base import Engine, EngineKind
from connectors.kafka.base import Consumer, Producer
from connectors.metrics import SILENT, MetricSink
from connectors.redis.base import AsyncBlobs, AsyncVectors, Brakes, EmbeddingCache, Leases, Ledger, Values
from connectors.redis.semantic import SemanticCache
from connectors.tls import client_context
from connectors.values import Loader
from executor.host import memory_pressure
from executor.settings import EngineSettings, ExecutorSettings, ExecutorTree
from executor.sweeper import LEASE_MS
from schemas.errors import BrokenConfiguration


def wall_clock_ms() -> int:
    """This machine's clock."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class ReplicaSource:
    """Where replicas come from that the settings do not list, and what they have in common."""

    settings: FoundReplicas
    discovery: Discovery


def _no_engine(settings: EngineSettings) -> Engine:
    raise BrokenConfiguration(f"nobody can make an engine for {settings.name}")


@dataclass(frozen=True)
class Ports:
    """Everything that an executor talks to.

    Attributes:
        pressure: how short of memory the executor's host is, see `executor.host`; by default nothing is told.
        consumer: makes a consumer of a group, or of none.
        brakes: what executors tell each other of the replicas that they speak for.
        sweep_leases: of the sweeper, with its shorter life.
        engines: of the replicas in the settings, by name.
        sources: of further replicas.
        engine: makes the engine of a replica that was found; closed by the executor when the replica has left.
        loaders: of business values, by name.
    """

    consumer: Callable[[str | None], Consumer]
    producer: Producer
    ledger: Ledger
    leases: Leases
    sweep_leases: Leases
    brakes: Brakes
    blobs: AsyncBlobs
    vectors: AsyncVectors
    embeddings: EmbeddingCache
    answers: SemanticCache
    values: Values
    engines: Mapping[str, Engine]
    loaders: Mapping[str, Loader] = field(default_factory=dict)
    sources: Sequence[ReplicaSource] = ()
    engine: Callable[[EngineSettings], Engine] = _no_engine
    now_ms: Callable[[], int] = wall_clock_ms
    pressure: Callable[[], float | None] = lambda: None


@asynccontextmanager
async def real_ports(tree: ExecutorTree, metrics: MetricSink) -> AsyncIterator[Ports]:
    """Kafka, Redis and engines as the settings name them; closed at the end.

    Raises:
        StackFault: no broker answers.
        BrokenConfiguration: a login is refused, or a secret is missing.
    """
    from connectors.kafka import KafkaRecordConsumer, KafkaRecordProducer
    from connectors.redis import (
        RedisAsyncBlobs,
        RedisAsyncVectors,
        RedisBrakes,
        RedisEmbeddingCache,
        RedisLeases,
        RedisLedger,
        RedisSemanticCache,
        RedisValues,
        async_client,
    )

    settings = tree.executor

    def consumer(group: str | None) -> Consumer:
        return KafkaRecordConsumer(
            tree.kafka,
            group=group,
            client_id="stoker-executor",
            metrics=metrics,
            session_timeout_ms=settings.session_ms,
        )

    trusted = None
    if settings.engine_cafile is not None:
        trusted = client_context("executor.engine_", cafile=settings.engine_cafile)
    redis = async_client(tree.redis)

    def engine_of(engine: EngineSettings) -> Engine:
        return _engine(engine, settings.request_timeout_ms, metrics, trusted)

    sources = _sources(settings, metrics)
    engines = {engine.name: engine_of(engine) for engine in settings.engines}
    loaders = _loaders(settings)
    try:
        with KafkaRecordProducer(tree.kafka, client_id="stoker-executor", metrics=metrics) as producer:
            yield Ports(
                consumer=consumer,
                producer=producer,
                ledger=RedisLedger(redis, ttl_ms=int(settings.ledger_hours * 3_600_000)),
                leases=RedisLeases(redis, life_ms=settings.lease_ms),
                sweep_leases=RedisLeases(redis, life_ms=LEASE_MS),
                brakes=RedisBrakes(redis),
                blobs=RedisAsyncBlobs(redis),
                vectors=RedisAsyncVectors(redis),
                embeddings=RedisEmbeddingCache(redis, model_name=tree.encoder.model_name, now_ms=wall_clock_ms),
                answers=RedisSemanticCache(redis, now_ms=wall_clock_ms),
                values=RedisValues(redis),
                engines=engines,
                loaders=loaders,
                sources=sources,
                engine=engine_of,
                pressure=memory_pressure,
            )
    finally:
        for source in sources:
            await source.discovery.close()
        for engine in engines.values():
            await engine.close()
        for loader in loaders.values():
            await loader.close()
        with contextlib.suppress(Exception):
            await redis.aclose()


def _loaders(settings: ExecutorSettings) -> dict[str, Loader]:
    from connectors.values import HttpLoader, SqlLoader

    loaders: dict[str, Loader] = {source.name: HttpLoader(source) for source in settings.http_loaders}
    return loaders | {source.name: SqlLoader(source) for source in settings.sql_loaders}


def _sources(settings: ExecutorSettings, metrics: MetricSink) -> tuple[ReplicaSource, ...]:
    """
    Raises:
        BrokenConfiguration: a secret or a file of a source is missing.
    """
    from connectors.discovery import DnsDiscovery, KubernetesDiscovery

    found = settings.discovery
    for source in found.found:
        if source.api_key is not None:
            source.api_key.reveal()  # now rather than when the first replica comes
    named = [ReplicaSource(dns, DnsDiscovery(dns, found.keep_s, metrics=metrics)) for dns in found.dns]
    clustered = [
        ReplicaSource(service, KubernetesDiscovery(service, found.keep_s, metrics=metrics))
        for service in found.kubernetes
    ]
    return (*named, *clustered)


def _engine(
    settings: EngineSettings, timeout_ms: int, metrics: MetricSink = SILENT, tls: ssl.SSLContext | None = None
) -> Engine:
    from connectors.engines.http_engine import Client
    from connectors.engines.sglang import SglangEngine
    from connectors.engines.tensorrt import TensorrtEngine
    from connectors.engines.vllm import VllmEngine
    from connectors.engines.vllm_tiered import TieredVllmEngine
    from connectors.tiers import LmcacheNode

    headers = {} if settings.api_key is None else {"Authorization": f"Bearer {settings.api_key.reveal()}"}
    client = Client(timeout_s=timeout_ms / 1000, headers=headers, tls=tls)
    if settings.lmcache is not None:
        return TieredVllmEngine(
            settings.url,
            tier=LmcacheNode(settings.lmcache.url, world_size=settings.lmcache.world_size, tls=tls),
            tier_model=settings.lmcache.model,
            replica=settings.name,
            metrics=metrics,
            **client,
        )
    kinds: dict[EngineKind, Callable[..., Engine]] = {
        "vllm": VllmEngine,
        "sglang": SglangEngine,
        "tensorrt_llm": TensorrtEngine,
    }
    return kinds[settings.kind](settings.url, **client)
