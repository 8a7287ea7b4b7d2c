"""Reading a topic from a moment on: what must be known of the last hours, without reading what is older.

The topics keep up to 14 days. Record times rise along a partition but for small disorder, hence a margin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from connectors.kafka.base import Consumer, Record, TopicPartition
from schemas.errors import TransientFault

DISORDER_MS = 60_000
"""How far a record's time may lie before an earlier record's: twice what the broker accepts ahead of its clock."""
POLL_MS = 2_000
STALLS = 15


def seek_since(consumer: Consumer, partitions: Sequence[TopicPartition], since_ms: int) -> dict[TopicPartition, int]:
    """Points an assigned consumer at the first records that are not older than `since_ms`; returns the present ends."""
    lag = consumer.lag()
    ends = {partition: consumer.position(partition) + lag[partition] for partition in partitions}
    for partition, offset in consumer.offsets_at(partitions, since_ms - DISORDER_MS).items():
        consumer.seek(partition, offset)
    return ends


def read_since(consumer: Consumer, topic: str, since_ms: int) -> Iterator[Record]:
    """All records of a topic from a record time on, to the ends that it has now. Assigns the consumer to the topic.

    Raises:
        TransientFault: the broker stopped answering.
    """
    partitions = consumer.partitions(topic)
    consumer.assign(partitions)
    ends = seek_since(consumer, partitions, since_ms)
    stalls = 0
    while any(consumer.position(partition) < ends[partition] for partition in partitions):
        records = consumer.poll(POLL_MS, 1_000)
        yield from (record for record in records if record.offset < ends[record.place])
        stalls = 0 if records else stalls + 1
        if stalls == STALLS:
            raise TransientFault(f"Kafka, reading {topic}: nothing for {STALLS * POLL_MS} ms")
