"""One suite for the Kafka ports, run on the broker in memory and, where there is one, on a real broker."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from connectors.kafka import (
    Consumer,
    KafkaAdmin,
    KafkaRecordConsumer,
    KafkaRecordProducer,
    Producer,
    Record,
    TopicPartition,
)
from connectors.kafka.fake import MemoryAdmin, MemoryBroker, MemoryConsumer, MemoryProducer
from connectors.kafka.producer import wall_clock_ms
from connectors.settings import KafkaSettings
from schemas.errors import RefusedCommand, StackFault, TransientFault
from schemas.topics import HOUR_MS, MAX_MESSAGE_BYTES, MAX_TIMESTAMP_AHEAD_MS, Topic

DEADLINE_S = 180


class Cluster:
    """What a test needs of one side: clients that are closed afterwards, and topics of its own."""

    def __init__(self, admin, producer, consumer, settings: KafkaSettings) -> None:
        self.admin, self.settings = admin, settings
        self._producer, self._consumer = producer, consumer
        self._open: list = []

    def topic(self, partitions: int = 3, retention_ms: int | None = HOUR_MS) -> str:
        topic = Topic(f"t{uuid.uuid4().hex[:12]}", "any", retention_ms, partitions_local=partitions)
        self.admin.create([topic])
        return self.settings.topic(topic)

    def producer(self) -> Producer:
        self._open.append(client := self._producer())
        return client

    def consumer(self, group: str | None = None) -> Consumer:
        self._open.append(client := self._consumer(group))
        return client

    def close(self) -> None:
        for client in self._open:
            client.close()
        self.admin.close()


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.service)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    prefix = f"p{uuid.uuid4().hex[:6]}."
    if request.param == "fake":
        settings = KafkaSettings(topic_prefix=prefix)
        broker = MemoryBroker()
        made = Cluster(
            MemoryAdmin(broker, settings),
            lambda: MemoryProducer(broker),
            lambda group: MemoryConsumer(broker, group),
            settings,
        )
    else:
        settings = KafkaSettings(bootstrap=request.getfixturevalue("kafka_bootstrap"), topic_prefix=prefix)
        made = Cluster(
            KafkaAdmin(settings),
            lambda: KafkaRecordProducer(settings),
            lambda group: KafkaRecordConsumer(settings, group=group),
            settings,
        )
    yield made
    made.close()


def read(consumer: Consumer, n: int, max_records: int = 500) -> list[Record]:
    """Poll until `n` records are there."""
    records: list[Record] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(records) < n and time.monotonic() < deadline:
        records += consumer.poll(200, max_records)
    assert len(records) == n
    return records


def until(condition: Callable[[], bool], consumers: list[Consumer]) -> list[Record]:
    """Poll all consumers until the condition holds; what they read on the way."""
    records: list[Record] = []
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "condition never held"
        for consumer in consumers:
            records += consumer.poll(100)
    return records


class Log:
    """A rebalance listener that remembers what happened."""

    def __init__(self, name: str, events: list) -> None:
        self.name, self.events = name, events

    def revoked(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        self.events.append((self.name, "revoked", partitions))
        return {}

    def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.events.append((self.name, "assigned", partitions))


def test_record_comes_back_as_it_was_sent(cluster: Cluster) -> None:
    topic = cluster.topic()
    now = wall_clock_ms()
    delivery = cluster.producer().send(
        topic, b"value", key=b"key", timestamp_ms=now - 5_000, headers=[("ce_id", b"1"), ("ce_id", b"\x00\xff")]
    )
    landed = delivery.wait()
    assert delivery.done
    consumer = cluster.consumer()
    consumer.assign(consumer.partitions(topic))
    (record,) = read(consumer, 1)
    assert record == Record(
        topic, landed.partition, landed.offset, now - 5_000, b"key", b"value", (("ce_id", b"1"), ("ce_id", b"\x00\xff"))
    )
    assert record.place == TopicPartition(topic, landed.partition)
    assert landed.timestamp_ms == now - 5_000


def test_equal_keys_share_a_partition_and_keep_their_order(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=4)
    producer = cluster.producer()
    for n in range(40):
        producer.send(topic, str(n).encode(), key=f"key-{n % 8}".encode())
    producer.flush()
    consumer = cluster.consumer()
    consumer.assign(consumer.partitions(topic))
    by_key: dict[bytes | None, list[Record]] = {}
    for record in read(consumer, 40):
        by_key.setdefault(record.key, []).append(record)
    assert len({r.partition for rs in by_key.values() for r in rs}) > 1
    for records in by_key.values():
        assert len({r.partition for r in records}) == 1
        assert [int(r.value or b"") for r in records] == sorted(int(r.value or b"") for r in records)


def test_fake_and_java_client_choose_the_same_partition(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=12)
    # murmur2 of these keys as org.apache.kafka.common.utils.UtilsTest has it
    for key, murmur2 in ((b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536)):
        landed = cluster.producer().send(topic, b"v", key=key).wait()
        assert landed.partition == (murmur2 & 0x7FFFFFFF) % 12


def test_tombstone_has_no_value(cluster: Cluster) -> None:
    topic = cluster.topic(retention_ms=None)
    cluster.producer().send(topic, None, key=b"gone").wait()
    (record,) = cluster.consumer().read_to_end(topic)
    assert (record.key, record.value) == (b"gone", None)


def test_record_without_key_and_value_is_a_programming_error(cluster: Cluster) -> None:
    topic = cluster.topic()
    with pytest.raises(ValueError, match="key"):
        cluster.producer().send(topic, None)


def test_far_future_time_is_clamped_and_harms_no_neighbour(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=1)
    producer = cluster.producer()
    before = wall_clock_ms()
    producer.send(topic, b"good", timestamp_ms=before)
    producer.send(topic, b"future", timestamp_ms=before + 400 * 24 * HOUR_MS)
    producer.send(topic, b"old", timestamp_ms=1)
    producer.flush()
    records = list(cluster.consumer().read_to_end(topic))
    assert [r.value for r in records] == [b"good", b"future", b"old"]
    assert [records[0].timestamp_ms, records[2].timestamp_ms] == [before, 1]
    assert before < records[1].timestamp_ms <= wall_clock_ms() + MAX_TIMESTAMP_AHEAD_MS


def test_missing_time_is_now_and_negative_time_is_refused(cluster: Cluster) -> None:
    topic = cluster.topic()
    before = wall_clock_ms()
    landed = cluster.producer().send(topic, b"v").wait()
    assert before <= landed.timestamp_ms <= wall_clock_ms()
    with pytest.raises(ValueError, match="negative"):
        cluster.producer().send(topic, b"v", timestamp_ms=-1)


def test_oversized_record_is_refused_and_the_next_one_is_not(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=1)
    producer = cluster.producer()
    with pytest.raises(RefusedCommand) as refusal:
        producer.send(topic, b"x" * (MAX_MESSAGE_BYTES + 1))
    assert refusal.value.reason == "broker_refused"
    producer.send(topic, b"x" * (MAX_MESSAGE_BYTES // 2 + 5))
    producer.flush()
    (record,) = cluster.consumer().read_to_end(topic)
    assert record.value is not None
    assert len(record.value) == MAX_MESSAGE_BYTES // 2 + 5


def test_poll_of_a_quiet_topic_returns_nothing_in_time(cluster: Cluster) -> None:
    topic = cluster.topic()
    consumer = cluster.consumer()
    consumer.assign(consumer.partitions(topic))
    began = time.monotonic()
    assert consumer.poll(200) == []
    assert time.monotonic() - began < 20


def test_poll_wakes_for_a_record_sent_meanwhile(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=1)
    consumer, producer = cluster.consumer(), cluster.producer()
    consumer.assign(consumer.partitions(topic))
    consumer.poll(100)
    later = threading.Timer(0.2, lambda: producer.send(topic, b"late").wait())
    later.start()
    (record,) = read(consumer, 1)
    later.join()
    assert record.value == b"late"


def test_poll_respects_max_records_and_loses_none(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=2)
    producer = cluster.producer()
    for n in range(25):
        producer.send(topic, str(n).encode(), partition=n % 2)
    producer.flush()
    consumer = cluster.consumer()
    consumer.assign(consumer.partitions(topic))
    seen: list[int] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(seen) < 25 and time.monotonic() < deadline:
        batch = consumer.poll(200, max_records=4)
        assert len(batch) <= 4
        seen += [int(r.value or b"") for r in batch]
    assert sorted(seen) == list(range(25))


def test_uncommitted_records_come_again_and_committed_ones_do_not(cluster: Cluster) -> None:
    topic, group = cluster.topic(partitions=1), f"g{uuid.uuid4().hex[:8]}"
    producer = cluster.producer()
    for n in range(10):
        producer.send(topic, str(n).encode())
    producer.flush()
    place = TopicPartition(topic, 0)
    first = cluster.consumer(group)
    first.subscribe([topic])
    read(first, 10)
    assert first.committed(place) is None
    first.commit({})
    first.commit({place: 4})
    assert first.committed(place) == 4
    assert first.position(place) == 10
    first.close()
    second = cluster.consumer(group)
    second.subscribe([topic])
    assert [r.offset for r in read(second, 6)] == [4, 5, 6, 7, 8, 9]


def test_another_group_reads_everything_again(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=2)
    cluster.producer().send(topic, b"one").wait()
    for _ in range(2):
        consumer = cluster.consumer(f"g{uuid.uuid4().hex[:8]}")
        consumer.subscribe([topic])
        read(consumer, 1)


def test_commit_of_a_foreign_partition_is_refused(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=2)
    consumer = cluster.consumer(f"g{uuid.uuid4().hex[:8]}")
    consumer.assign([TopicPartition(topic, 0)])
    with pytest.raises(TransientFault, match="no longer assigned"):
        consumer.commit({TopicPartition(topic, 1): 1})


def test_two_members_share_the_partitions_and_the_survivor_takes_all(cluster: Cluster) -> None:
    topic, group = cluster.topic(partitions=4), f"g{uuid.uuid4().hex[:8]}"
    everything = {TopicPartition(topic, n) for n in range(4)}
    events: list = []
    first, second = cluster.consumer(group), cluster.consumer(group)
    first.subscribe([topic], Log("first", events))
    until(lambda: first.assignment() == everything, [first])
    second.subscribe([topic], Log("second", events))
    until(lambda: len(first.assignment()) == 2 and len(second.assignment()) == 2, [first, second])
    assert first.assignment() | second.assignment() == everything
    assert first.assignment().isdisjoint(second.assignment())
    assert ("first", "revoked", frozenset(everything)) in events
    assert ("second", "assigned", second.assignment()) in events
    share = second.assignment()
    second.close()
    assert ("second", "revoked", share) in events
    until(lambda: first.assignment() == everything, [first])


def test_offsets_that_a_listener_returns_are_stored(cluster: Cluster) -> None:
    topic, group = cluster.topic(partitions=1), f"g{uuid.uuid4().hex[:8]}"
    place = TopicPartition(topic, 0)
    producer = cluster.producer()
    for _ in range(3):
        producer.send(topic, b"v")
    producer.flush()
    first = cluster.consumer(group)

    class CommitOnTheWayOut(Log):
        def revoked(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
            return dict.fromkeys(partitions, 3)

    first.subscribe([topic], CommitOnTheWayOut("first", []))
    read(first, 3)
    first.close()
    second = cluster.consumer(group)
    second.assign([place])
    assert second.committed(place) == 3


def test_seek_position_and_lag(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=2)
    producer = cluster.producer()
    for n in range(6):
        producer.send(topic, str(n).encode(), partition=0)
    producer.flush()
    consumer = cluster.consumer()
    zero, one = consumer.partitions(topic)
    consumer.assign([zero, one])
    assert consumer.lag() == {zero: 6, one: 0}
    read(consumer, 6)
    assert consumer.lag() == {zero: 0, one: 0}
    consumer.seek(zero, 4)
    assert consumer.position(zero) == 4
    assert [r.offset for r in read(consumer, 2)] == [4, 5]


def test_paused_partition_is_silent_until_resumed(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=2)
    producer = cluster.producer()
    consumer = cluster.consumer()
    zero, one = consumer.partitions(topic)
    consumer.assign([zero, one])
    consumer.pause([zero])
    producer.send(topic, b"held", partition=0)
    producer.send(topic, b"free", partition=1)
    producer.flush()
    assert [r.value for r in read(consumer, 1)] == [b"free"]
    assert consumer.poll(300) == []
    consumer.resume([zero])
    assert [r.value for r in read(consumer, 1)] == [b"held"]


def test_a_partition_that_was_paused_half_way_goes_on_after_others_were_read(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=2)
    producer = cluster.producer()
    for number in range(40):
        producer.send(topic, str(number).encode(), partition=number % 2)
    producer.flush()
    consumer = cluster.consumer()
    consumer.assign(consumer.partitions(topic))
    first = read(consumer, 1, max_records=1)
    half_way = first[0].place
    consumer.pause([half_way])
    other = read(consumer, 20)
    assert {record.place for record in other} == set(consumer.partitions(topic)) - {half_way}
    consumer.resume([half_way])
    rest = read(consumer, 19)
    assert [record.offset for record in first + rest] == list(range(20))


def test_offsets_are_found_by_record_time(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=3)
    producer = cluster.producer()
    now_ms = time.time_ns() // 1_000_000
    begin_ms = now_ms - 100_000
    for number in range(50):
        producer.send(topic, b"x" * 100, partition=number % 2, timestamp_ms=begin_ms + 1_000 * number)
    producer.flush()
    consumer = cluster.consumer()
    zero, one, empty = consumer.partitions(topic)
    assert consumer.offsets_at([zero, one, empty], begin_ms + 10_001) == {zero: 6, one: 5, empty: 0}
    assert consumer.offsets_at([zero, one], -5) == {zero: 0, one: 0}
    assert consumer.offsets_at([zero, one], now_ms) == {zero: 25, one: 25}
    assert consumer.offsets_at([], now_ms) == {}


def test_read_to_end_returns_all_and_stops_without_touching_the_consumer(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=3)
    producer = cluster.producer()
    for n in range(100):
        producer.send(topic, str(n).encode(), key=str(n).encode())
    producer.flush()
    consumer = cluster.consumer(f"g{uuid.uuid4().hex[:8]}")
    consumer.assign([TopicPartition(topic, 0)])
    reading = consumer.read_to_end(topic)
    first = next(reading)
    producer.send(topic, b"after the call", partition=first.partition).wait()
    values = [first.value, *(r.value for r in reading)]
    assert sorted(int(v or b"") for v in values) == list(range(100))
    assert consumer.position(TopicPartition(topic, 0)) == 0
    assert consumer.assignment() == {TopicPartition(topic, 0)}


def test_read_to_end_of_an_empty_topic_is_empty(cluster: Cluster) -> None:
    assert list(cluster.consumer().read_to_end(cluster.topic())) == []


def test_read_to_end_may_be_left_half_way(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=1)
    producer = cluster.producer()
    for _ in range(5):
        producer.send(topic, b"v")
    producer.flush()
    consumer = cluster.consumer()
    next(iter(consumer.read_to_end(topic)))
    assert len(list(consumer.read_to_end(topic))) == 5


def test_unknown_topic_is_a_stack_fault(cluster: Cluster) -> None:
    with pytest.raises(StackFault, match="does not exist"):
        cluster.consumer().partitions("nobody.made.this")
    with pytest.raises(StackFault, match="does not exist"):
        cluster.consumer("g").subscribe(["nobody.made.this"])


@pytest.mark.parametrize("poll_ms", [1, 20, 100])
def test_a_group_of_a_topic_just_made_gets_its_partitions(cluster: Cluster, poll_ms: int) -> None:
    """However short the polls: kafka-python forgot a join that a poll's timeout interrupted."""
    for _ in range(5):
        topic = cluster.topic(partitions=4)
        consumer = cluster.consumer(f"g{uuid.uuid4().hex[:8]}")
        consumer.subscribe([topic])
        deadline = time.monotonic() + DEADLINE_S
        while len(consumer.assignment()) < 4:
            assert time.monotonic() < deadline, "no partitions"
            consumer.poll(poll_ms)
        consumer.close()


def test_consumer_without_a_group_neither_subscribes_nor_commits(cluster: Cluster) -> None:
    topic = cluster.topic()
    consumer = cluster.consumer()
    with pytest.raises(ValueError, match="group"):
        consumer.subscribe([topic])
    with pytest.raises(ValueError, match="group"):
        consumer.commit({TopicPartition(topic, 0): 1})


def test_create_twice_is_harmless_and_check_names_differences(cluster: Cluster) -> None:
    first = Topic("first.topic", "any", HOUR_MS, partitions_local=2)
    second = Topic("second.topic", "any", None, partitions_local=1)
    names = [cluster.settings.topic(first), cluster.settings.topic(second)]
    assert [str(d) for d in cluster.admin.check([first])] == [f"topic {names[0]}: exists is no, expected yes"]
    assert cluster.admin.create([first, second]) == names
    assert cluster.admin.create([first, second]) == []
    assert cluster.admin.check([first, second]) == []
    assert set(names) <= cluster.admin.names()
    other = Topic("first.topic", "any", 2 * HOUR_MS, partitions_local=5)
    assert {(d.setting, d.expected, d.found) for d in cluster.admin.check([other])} == {
        ("partitions", "5", "2"),
        ("retention.ms", str(2 * HOUR_MS), str(HOUR_MS)),
    }
    cluster.admin.delete([*names, "nobody.made.this"])
    deadline = time.monotonic() + DEADLINE_S
    while cluster.admin.names() & set(names):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_all_topics_of_the_project_can_be_created(cluster: Cluster) -> None:
    created = cluster.admin.create()
    assert len(created) == 12
    assert cluster.admin.check() == []
    cluster.admin.delete(created)


def test_closing_twice_is_harmless(cluster: Cluster) -> None:
    for client in (cluster.producer(), cluster.consumer(), cluster.consumer("g")):
        client.close()
        client.close()
