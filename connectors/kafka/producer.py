"""Records into a real broker: idempotent, clamped in time, and a failure is never lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Self

from kafka import KafkaProducer, errors

from connectors.kafka.base import Headers, Position
from connectors.kafka.faults import connecting, sorted_fault
from connectors.kafka.security import client_options
from connectors.metrics import SILENT, MetricSink
from connectors.settings import KafkaSettings
from schemas.errors import RefusedCommand, StokerError, TransientFault
from schemas.topics import MAX_MESSAGE_BYTES, MAX_TIMESTAMP_AHEAD_MS


def wall_clock_ms() -> int:
    """This machine's clock."""
    return time.time_ns() // 1_000_000


def clamped_ms(timestamp_ms: int | None, now_ms: int) -> int:
    """The record time that a topic accepts: at most 30 s ahead of `now_ms`; None means now.

    Raises:
        ValueError: before 1970, which Kafka cannot hold.
    """
    if timestamp_ms is None:
        return now_ms
    if timestamp_ms < 0:
        raise ValueError(f"a record's time must not be negative: {timestamp_ms}")
    return min(timestamp_ms, now_ms + MAX_TIMESTAMP_AHEAD_MS)


class _Sent:
    """`Delivery` of one record."""

    def __init__(self, future: Any, topic: str) -> None:
        self._future = future
        self._topic = topic

    @property
    def done(self) -> bool:
        return bool(self._future.is_done)

    def wait(self, timeout_ms: int = 30_000) -> Position:
        try:
            landed = self._future.get(timeout=timeout_ms / 1000)
        except errors.KafkaError as fault:
            raise sorted_fault(fault, f"sending to {self._topic}") from fault
        return Position(landed.partition, landed.offset, landed.timestamp)


class KafkaRecordProducer:
    """`Producer` on a real broker.

    Args:
        settings: where Kafka is, and how patient to be.
        client_id: how the broker's logs name this process.
        metrics: counts sent, clamped and refused records.
        now_ms: the clock that record times are clamped by.
        connect_timeout_ms: how long to look for a broker, or for a topic's metadata, before giving up.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        client_id: str = "stoker",
        metrics: MetricSink = SILENT,
        now_ms: Callable[[], int] = wall_clock_ms,
        connect_timeout_ms: int = 30_000,
    ) -> None:
        self._metrics = metrics
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._failure: StokerError | None = None
        with connecting(settings):
            self._client = KafkaProducer(
                **client_options(settings),
                client_id=client_id,
                bootstrap_timeout_ms=connect_timeout_ms,
                max_block_ms=connect_timeout_ms,
                enable_idempotence=True,
                acks="all",
                linger_ms=settings.linger_ms,
                delivery_timeout_ms=settings.delivery_timeout_ms,
                max_request_size=MAX_MESSAGE_BYTES,
                reconnect_backoff_max_ms=2_000,
                allow_auto_create_topics=False,
            )

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> _Sent:
        """Queue one record; see `Producer.send`."""
        time_ms = clamped_ms(timestamp_ms, self._now_ms())
        if timestamp_ms is not None and time_ms < timestamp_ms:
            self._metrics.count("stoker_kafka_timestamps_clamped_total", topic=topic)
        try:
            future = self._client.send(
                topic, value=value, key=key, headers=list(headers), partition=partition, timestamp_ms=time_ms
            )
        except errors.KafkaError as fault:
            error = sorted_fault(fault, f"sending to {topic}")
            if isinstance(error, RefusedCommand):
                self._metrics.count("stoker_kafka_records_refused_total", topic=topic)
            raise error from fault
        self._metrics.count("stoker_kafka_records_sent_total", topic=topic)
        future.add_errback(self._note_failure, topic)
        return _Sent(future, topic)

    def _note_failure(self, topic: str, fault: Exception) -> None:
        error = sorted_fault(fault, f"sending to {topic}")
        if isinstance(error, RefusedCommand):
            self._metrics.count("stoker_kafka_records_refused_total", topic=topic)
        with self._lock:
            if self._failure is None or isinstance(self._failure, RefusedCommand):
                self._failure = error

    def flush(self, timeout_ms: int = 30_000) -> None:
        """Wait for all answers; see `Producer.flush`."""
        try:
            self._client.flush(timeout=timeout_ms / 1000)
        except errors.KafkaError as fault:
            raise TransientFault(f"Kafka, flushing: {type(fault).__name__}: {fault}") from fault
        with self._lock:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self, timeout_ms: int = 30_000) -> None:
        """Send what is queued and let go; see `Producer.close`."""
        try:
            self._client.close(timeout=timeout_ms / 1000)
        except errors.KafkaTimeoutError:
            # close() waits for the queue and leaves its thread running when that takes too long: the caller asked to go
            self._client._sender.force_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
