"""A gateway on the real stack: Kafka, Redis and engines from the settings, and the play from first turn to last."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from analytics.scopes import ScopeMap
from connectors.kafka.producer import KafkaRecordProducer
from connectors.redis import RedisBlobs, sync_client
from connectors.settings import KafkaSettings, RedisSettings
from schemas import RequestEvent
from schemas.topics import REQUESTS
from stoker.replay.blobs import FreshBlobs
from stoker.replay.events import Marks
from stoker.replay.gateway import Gateway, GatewayConfig, Routing, Salting, http_client
from stoker.replay.sink import EventSink
from stoker.replay.turns import Turn

BLOB_LIFE_MS = 6 * 3_600_000
"""Life of a segment's text at time scale 1, as long as a command is kept."""
SHORTEST_BLOB_LIFE_MS = 600_000
"""A scaled stack still runs on a real clock: texts outlive a demo."""


@dataclass(frozen=True)
class Place:
    """Where a gateway stands.

    Attributes:
        pool: of all its replicas.
        engines: replica names and base URLs.
        time_scale: shortens the life of texts.
        run: part of every request id; drawn where it is empty.
        adapters, keep_answers: see `GatewayConfig`.
    """

    kafka: KafkaSettings
    redis: RedisSettings
    scopes: ScopeMap
    pool: str
    model: str
    engines: Mapping[str, str]
    time_scale: float = 1.0
    routing: Routing = "session"
    salts: Mapping[str, Salting] = field(default_factory=dict)
    concurrency: int = 128
    run: str = ""
    adapters: Mapping[str, str] = field(default_factory=dict)
    keep_answers: bool = False


@contextlib.asynccontextmanager
async def gateway_at(
    place: Place, wrap: Callable[[EventSink], Callable[[RequestEvent], None]] = lambda sink: sink
) -> AsyncIterator[tuple[Gateway, EventSink]]:
    """A gateway and the sink of its events; when the block ends without an error every event is in Kafka.

    Args:
        wrap: what stands between gateway and sink, for the demo's disturbances.

    Raises:
        StackFault, TransientFault: Kafka does not answer.
    """
    run = place.run or secrets.token_hex(4)
    marks = Marks(place.pool, place.model, secrets.token_bytes(16))
    config = GatewayConfig(
        run,
        marks,
        place.routing,
        place.concurrency,
        salts=place.salts,
        adapters=place.adapters,
        keep_answers=place.keep_answers,
    )
    life_ms = max(SHORTEST_BLOB_LIFE_MS, round(BLOB_LIFE_MS / place.time_scale))
    producer = await asyncio.to_thread(KafkaRecordProducer, place.kafka, client_id="stoker-replay")
    redis = sync_client(place.redis)
    try:
        sink = EventSink(producer, place.kafka.topic(REQUESTS))
        async with http_client(place.concurrency, config.timeout_s) as client:
            blobs = FreshBlobs(RedisBlobs(redis), life_ms)
            yield Gateway(config, place.engines, wrap(sink), blobs, place.scopes, client), sink
        await asyncio.to_thread(producer.flush)
    finally:
        redis.close()
        await asyncio.to_thread(producer.close, 5_000)


async def replay(place: Place, turns: Iterable[Turn], tell: Callable[[str], None], every_s: float = 10.0) -> Gateway:
    """Play turns to their end and tell about it every few seconds. Returns the gateway with its counts."""
    async with gateway_at(place) as (gateway, sink):

        async def report() -> None:
            while True:
                await asyncio.sleep(every_s)
                tell(line_about(gateway, sink))

        reporter = asyncio.create_task(report())
        try:
            await gateway.play(turns)
        finally:
            reporter.cancel()
    tell(line_about(gateway, sink))
    return gateway


def line_about(gateway: Gateway, sink: EventSink) -> str:
    """One line about how far a play is."""
    errors = ", ".join(f"{name} {count}" for name, count in gateway.errors.most_common()) or "none"
    return (
        f"requests {gateway.requests:,}  errors {errors}  events {sink.records:,}  "
        f"behind at most {gateway.behind_ms:,.0f} ms"
    )
