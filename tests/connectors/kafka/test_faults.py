"""Whose fault it is, and what a broker that is not there looks like."""

from __future__ import annotations

import socket

import pytest
from kafka import errors

from connectors.kafka import KafkaAdmin, KafkaRecordConsumer, KafkaRecordProducer
from connectors.kafka.fake import MemoryAdmin, MemoryBroker, MemoryConsumer, MemoryProducer
from connectors.kafka.faults import sorted_fault
from connectors.kafka.producer import clamped_ms
from connectors.settings import KafkaSettings
from schemas.errors import BrokenConfiguration, RefusedCommand, StackFault, StokerError, TransientFault


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (errors.MessageSizeTooLargeError(), RefusedCommand),
        (errors.InvalidTimestampError(), RefusedCommand),
        (errors.TopicAuthorizationFailedError(), BrokenConfiguration),
        (errors.SaslAuthenticationFailedError(), BrokenConfiguration),
        (
            errors.KafkaError("Unexpected error in InitProducerIdResponse: ClusterAuthorizationFailedError"),
            BrokenConfiguration,
        ),
        (errors.UnknownTopicOrPartitionError(), StackFault),
        (errors.CommitFailedError(), TransientFault),
        (errors.RebalanceInProgressError(), TransientFault),
        (errors.KafkaTimeoutError(), TransientFault),
        (errors.NotLeaderForPartitionError(), TransientFault),
    ],
)
def test_fault_is_sorted(fault: Exception, kind: type[StokerError]) -> None:
    error = sorted_fault(fault, "doing something")
    assert type(error) is kind
    assert "doing something" in str(error)


def test_broker_that_is_not_there_is_named_with_the_cure() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        settings = KafkaSettings(bootstrap=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(StackFault, match="stoker stack up"):
            KafkaAdmin(settings, connect_timeout_ms=300)
        with pytest.raises(StackFault, match="does not answer"):
            KafkaRecordConsumer(settings, connect_timeout_ms=300)
        with pytest.raises(StackFault, match="does not answer"):
            KafkaRecordProducer(settings, connect_timeout_ms=300)


def test_offline_fake_fails_everywhere_and_recovers() -> None:
    broker = MemoryBroker()
    broker.add_topic("t", 1)
    producer, consumer = MemoryProducer(broker), MemoryConsumer(broker, "g")
    consumer.assign(consumer.partitions("t"))
    broker.offline = True
    lost = producer.send("t", b"lost")
    for call in (lambda: consumer.poll(1), producer.flush, lost.wait, lambda: list(consumer.read_to_end("t"))):
        with pytest.raises(TransientFault):
            call()
    with pytest.raises(StackFault):
        MemoryAdmin(broker).names()
    broker.offline = False
    producer.flush()
    producer.send("t", b"found")
    assert [r.value for r in consumer.poll(1)] == [b"found"]


def test_clamped_time() -> None:
    assert clamped_ms(None, 1_000_000) == 1_000_000
    assert clamped_ms(0, 1_000_000) == 0
    assert clamped_ms(1_030_000, 1_000_000) == 1_030_000
    assert clamped_ms(1_030_001, 1_000_000) == 1_030_000
    assert clamped_ms(10**30, 1_000_000) == 1_030_000
