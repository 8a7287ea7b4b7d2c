"""Reading a topic from a moment on: what must be known of the last hours, without reading what is older.

The topics keep up to 14 days. Record times rise along a partition but for small disorder, so the first record that is
young enough is found by bisection, with a margin for the disorder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from connectors.kafka.base import Consumer, Record, TopicPartition
from schemas.errors import TransientFault

DISORDER_MS = 60_000
"""How far a record's time may lie before an earlier record's: twice what the broker accepts ahead of its clock."""
BISECTED_ABOVE = 2_000
"""A partition with fewer records is simply read."""
PROBE_MS = 2_000
STALLS = 15


def seek_since(consumer: Consumer, partitions: Sequence[TopicPartition], since_ms: int) -> dict[TopicPartition, int]:
    """Points an assigned consumer at the first records that are not older than `since_ms`; returns the present ends."""
    lag = consumer.lag()
    ends = {partition: consumer.position(partition) + lag[partition] for partition in partitions}
    starts = {partition: consumer.position(partition) for partition in partitions}
    for partition in partitions:
        consumer.pause(other for other in partitions if other != partition)
        consumer.resume([partition])
        start = _bisected(consumer, partition, starts[partition], ends[partition], since_ms - DISORDER_MS)
        consumer.seek(partition, start)
    consumer.resume(partitions)
    return ends


def _bisected(consumer: Consumer, partition: TopicPartition, low: int, high: int, since_ms: int) -> int:
    while high - low > BISECTED_ABOVE:
        middle = (low + high) // 2
        consumer.seek(partition, middle)
        records = _first(consumer, partition)
        # Nothing there, or a record without a time: nothing is known, so the earlier half is read too.
        if not records or records[0].timestamp_ms < 0 or records[0].timestamp_ms >= since_ms:
            high = middle
        else:
            low = middle
    return low


def _first(consumer: Consumer, partition: TopicPartition) -> list[Record]:
    return [record for record in consumer.poll(PROBE_MS, 1) if record.place == partition]


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
        records = consumer.poll(PROBE_MS, 1_000)
        yield from (record for record in records if record.offset < ends[record.place])
        stalls = 0 if records else stalls + 1
        if stalls == STALLS:
            raise TransientFault(f"Kafka, reading {topic}: nothing for {STALLS * PROBE_MS} ms")
