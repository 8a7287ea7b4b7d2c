"""Request events into llm.requests, as a gateway's producer writes them."""

from __future__ import annotations

from connectors.kafka.base import Producer
from schemas import RequestEvent, encode


class EventSink:
    """Publishes events: key session, else event id; record time = event time. Counts what it sent.

    Args:
        producer: of the broker.
        topic: full name of llm.requests.
    """

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self.records = 0

    def __call__(self, event: RequestEvent) -> None:
        """Queue one event."""
        self.raw(encode(event), event.session or event.event_id, event.event_time_ms)

    def raw(self, value: bytes, key: str, at_ms: int) -> None:
        """Queue any bytes: for records that no gateway should send, but some do."""
        self._producer.send(self._topic, value, key=key.encode(), timestamp_ms=at_ms)
        self.records += 1
