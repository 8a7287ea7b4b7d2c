"""What the executor writes to Kafka: outcomes, residency, telemetry and dead letters, each under its key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from connectors.kafka.base import Delivery, Producer, Record
from connectors.settings import KafkaSettings
from schemas import PoisonMessage, RefusedCommand, ReplicaSample, Residency, WarmupOutcome, encode, letter_of
from schemas.topics import DEAD_LETTERS, OUTCOMES, RESIDENCY, TELEMETRY

log = logging.getLogger(__name__)


def outcome_key(outcome: WarmupOutcome) -> bytes:
    """Pool and target key, as the command's own key."""
    return f"{outcome.pool} {outcome.target_key}".encode()


def residency_key(state: Residency) -> bytes:
    """Replica and target key: what compaction keeps one record of. The scope is in it, since two scopes may hold equal
    hashes under different salts."""
    return f"{state.replica} {state.scope} {state.target_key}".encode()


class Publisher:
    """Sends from the event loop without blocking it.

    Args:
        producer: shared by everything this process writes.
        kafka: names of the topics.
    """

    def __init__(self, producer: Producer, kafka: KafkaSettings) -> None:
        self._producer = producer
        self._kafka = kafka

    async def outcomes(self, outcomes: Sequence[WarmupOutcome], dated: bool = True) -> list[WarmupOutcome]:
        """Publishes outcomes; once it returns, all of them are in the topic but those that the broker refused.

        Args:
            dated: records get the time at which their work ended; else that of sending.

        Returns:
            Those that the broker refused.

        Raises:
            TransientFault: some may be missing; publish all of them again (`outcome_id` makes that harmless).
        """
        return await asyncio.to_thread(self._send_and_wait, list(outcomes), dated)

    def _send_and_wait(self, outcomes: list[WarmupOutcome], dated: bool) -> list[WarmupOutcome]:
        refused, deliveries = [], []
        for outcome in outcomes:
            time_ms = outcome.finished_at_ms if dated else None
            try:
                deliveries.append((outcome, self._send_outcome(outcome, time_ms)))
            except RefusedCommand as refusal:
                log.error("the outcome of %s was refused: %s", outcome.command_id, refusal)
                refused.append(outcome)
        # Not flush: it would also wait for, and raise for, what others of this process have sent.
        for outcome, delivery in deliveries:
            try:
                delivery.wait()
            except RefusedCommand as refusal:
                log.error("the outcome of %s was refused: %s", outcome.command_id, refusal)
                refused.append(outcome)
        return refused

    def _send_outcome(self, outcome: WarmupOutcome, time_ms: int | None) -> Delivery:
        topic = self._kafka.topic(OUTCOMES)
        return self._producer.send(topic, encode(outcome), key=outcome_key(outcome), timestamp_ms=time_ms)

    async def residency(self, states: Iterable[Residency]) -> None:
        """Queues residency deltas.

        Raises:
            TransientFault: the producer's buffer is full or the broker unknown for too long.
        """
        records = [(residency_key(state), encode(state), state.observed_at_ms) for state in states]
        await asyncio.to_thread(self._send_all, self._kafka.topic(RESIDENCY), records)

    async def sample(self, sample: ReplicaSample) -> None:
        """Queues one sample; see `residency` for what is raised."""
        records = [(sample.replica.encode(), encode(sample), sample.sampled_at_ms)]
        await asyncio.to_thread(self._send_all, self._kafka.topic(TELEMETRY), records)

    def _send_all(self, topic: str, records: list[tuple[bytes, bytes, int]]) -> None:
        for key, value, time_ms in records:
            self._producer.send(topic, value, key=key, timestamp_ms=time_ms)

    async def dead_letter(self, record: Record, poison: PoisonMessage, now_ms: int) -> None:
        """Publishes what a bad record was, without its bytes: a command names hashes, but a bad one may hold anything.

        Raises:
            TransientFault: it may not be in the topic.
        """
        await asyncio.to_thread(self._send_dead, record, poison, now_ms)

    def _send_dead(self, record: Record, poison: PoisonMessage, now_ms: int) -> None:
        at_ms = record.timestamp_ms if record.timestamp_ms >= 0 else now_ms
        value = record.value or b""
        letter = letter_of(record.topic, value, at_ms, poison, partition=record.partition, offset=record.offset)
        try:
            topic = self._kafka.topic(DEAD_LETTERS)
            self._producer.send(topic, encode(letter), key=poison.reason.encode(), timestamp_ms=at_ms).wait()
        except RefusedCommand as refusal:
            log.error("a dead letter was refused: %s", refusal)
