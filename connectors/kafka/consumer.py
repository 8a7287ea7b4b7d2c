"""Records out of a real broker: subscribed or assigned, committed only by hand."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import kafka
from kafka import KafkaConsumer, OffsetAndMetadata, errors

from connectors.kafka.base import RebalanceListener, Record, TopicPartition
from connectors.kafka.faults import connecting, sorted_faults
from connectors.kafka.security import client_options
from connectors.metrics import SILENT, MetricSink
from connectors.settings import KafkaSettings
from schemas.errors import StackFault, TransientFault
from schemas.topics import MAX_MESSAGE_BYTES

READ_STALL_MS = 30_000
"""`read_to_end` gives up when a broker that said it has more sends nothing for this long."""


class _Relay(kafka.AsyncConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """Hands kafka-python's calls on in our own terms and stores what the listener returns.

    It runs on kafka-python's network thread, where a blocking commit is impossible: hence the returned offsets.
    """

    def __init__(self, client: Any, listener: RebalanceListener, metrics: MetricSink) -> None:
        self._client = client
        self._listener = listener
        self._metrics = metrics

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        partitions = _ours(revoked)
        offsets = self._listener.revoked(partitions) if partitions else {}
        if not offsets:
            return
        try:
            await self._client.commit_async(_stored(offsets))
        except errors.KafkaError:
            # The records come again to the next owner: costs work, loses nothing. Not worth failing the balance for.
            self._metrics.count("stoker_kafka_commits_lost_total")

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._listener.assigned(_ours(assigned))

    async def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        partitions = _ours(lost)
        if partitions and self._listener.revoked(partitions):
            self._metrics.count("stoker_kafka_commits_lost_total")


def _stored(offsets: Mapping[TopicPartition, int]) -> dict[Any, Any]:
    return {_theirs(p): OffsetAndMetadata(offset, "", -1) for p, offset in offsets.items()}


def _ours(partitions: Iterable[Any]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(p.topic, p.partition) for p in partitions)


def _theirs(partition: TopicPartition) -> Any:
    return kafka.TopicPartition(partition.topic, partition.partition)


def _record(raw: Any) -> Record:
    time_ms = -1 if raw.timestamp is None else raw.timestamp
    return Record(raw.topic, raw.partition, raw.offset, time_ms, raw.key, raw.value, tuple(raw.headers or ()))


class KafkaRecordConsumer:
    """`Consumer` on a real broker.

    Args:
        settings: where Kafka is.
        group: full group id (`settings.group(job)`); None reads without a group and cannot subscribe or commit.
        client_id: how the broker's logs name this process.
        metrics: counts the records that `poll` returns, and commits lost in a balance.
        session_timeout_ms: silence after which the group counts this process as dead and hands its partitions on.
        connect_timeout_ms: how long to look for a broker before giving up.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        group: str | None = None,
        client_id: str = "stoker",
        metrics: MetricSink = SILENT,
        session_timeout_ms: int = 10_000,
        connect_timeout_ms: int = 30_000,
    ) -> None:
        self._metrics = metrics
        self._group = group
        self._settings = settings
        self._options: dict[str, Any] = {
            **client_options(settings),
            "client_id": client_id,
            "bootstrap_timeout_ms": connect_timeout_ms,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "allow_auto_create_topics": False,
            "max_partition_fetch_bytes": MAX_MESSAGE_BYTES,
            "fetch_max_wait_ms": 100,
            "reconnect_backoff_max_ms": 2_000,
        }
        self._session = {
            "session_timeout_ms": session_timeout_ms,
            "heartbeat_interval_ms": max(1, session_timeout_ms // 4),
        }
        self._client = self._connect(group)

    def _connect(self, group: str | None) -> Any:
        options = self._options if group is None else {**self._options, **self._session}
        with connecting(self._settings):
            return KafkaConsumer(group_id=group, **options)

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener | None = None) -> None:
        """Join the group; see `Consumer.subscribe`."""
        if self._group is None:
            raise ValueError("a consumer without a group cannot subscribe")
        for topic in topics:
            # A member that leads the group before it knows the partitions hands out none and has to join again.
            self.partitions(topic)
        with sorted_faults(f"subscribing to {', '.join(topics)}"):
            self._client.subscribe(list(topics), listener=self._relay(listener))

    def _relay(self, listener: RebalanceListener | None) -> _Relay | None:
        return None if listener is None else _Relay(self._client, listener, self._metrics)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these; see `Consumer.assign`."""
        with sorted_faults("assigning"):
            self._client.assign([_theirs(p) for p in partitions])

    def assignment(self) -> frozenset[TopicPartition]:
        """What is read now."""
        return _ours(self._client.assignment())

    def partitions(self, topic: str) -> tuple[TopicPartition, ...]:
        """All partitions of a topic, in order."""
        with sorted_faults(f"looking up {topic}"):
            numbers = self._client.partitions_for_topic(topic)
        if not numbers:
            raise StackFault(f"Kafka topic {topic} does not exist; create the topics (`stoker stack up`)")
        return tuple(TopicPartition(topic, number) for number in sorted(numbers))

    def poll(self, timeout_ms: int, max_records: int = 500) -> list[Record]:
        """Next records; see `Consumer.poll`."""
        self._stay_joining()
        self._unpark()
        with sorted_faults("reading"):
            batches = self._client.poll(timeout_ms=timeout_ms, max_records=max_records)
        records = [_record(raw) for batch in batches.values() for raw in batch]
        for place, batch in batches.items():
            self._metrics.count("stoker_kafka_records_read_total", len(batch), topic=place.topic)
        return records

    def _stay_joining(self) -> None:
        """See a join through that a poll's timeout interrupted.

        kafka-python 3.0.12 forgets one that new metadata caused: between two polls it holds the join for done, never
        takes the partitions, and its silent heartbeat has the broker put the member out.
        """
        coordinator = self._client._coordinator
        if coordinator.rejoining:
            coordinator.request_rejoin()

    def _unpark(self) -> None:
        """Let a partition go on that was paused half-way and resumed.

        kafka-python 3.0.12 takes its records up again only where it has none at hand, and holds those that are used up
        for some: it would neither return the partition's records nor fetch any.
        """
        fetcher = self._client._fetcher
        if not fetcher._next_partition_records:
            fetcher._next_partition_records = None

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Store offsets; see `Consumer.commit`."""
        if not offsets:
            return
        if self._group is None:
            raise ValueError("a consumer without a group cannot commit")
        strangers = offsets.keys() - self.assignment()
        if strangers:
            raise TransientFault(f"Kafka, committing: no longer assigned: {sorted(strangers)}")
        with sorted_faults("committing"):
            self._client.commit(_stored(offsets))

    def committed(self, partition: TopicPartition) -> int | None:
        """The group's stored offset."""
        with sorted_faults("reading the committed offset"):
            offset: int | None = self._client.committed(_theirs(partition))
        return offset

    def position(self, partition: TopicPartition) -> int:
        """Offset of the next record."""
        with sorted_faults("reading the position"):
            offset: int | None = self._client.position(_theirs(partition), timeout_ms=READ_STALL_MS)
        if offset is None:
            raise TransientFault(f"Kafka: no position of {partition.topic}/{partition.partition} yet")
        return offset

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at `offset`."""
        with sorted_faults("seeking"):
            self._client.seek(_theirs(partition), offset)

    def offsets_at(self, partitions: Iterable[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        """Offsets by record time; see `Consumer.offsets_at`."""
        theirs = [_theirs(p) for p in partitions]
        if not theirs:
            return {}
        with sorted_faults("looking up offsets by time"):
            ends = self._client.end_offsets(theirs)
            found = self._client.offsets_for_times(dict.fromkeys(theirs, max(0, time_ms)))
        return {
            TopicPartition(p.topic, p.partition): ends[p] if found.get(p) is None else found[p].offset for p in theirs
        }

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return nothing of these for now."""
        self._client.pause(*[_theirs(p) for p in partitions])

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`."""
        self._client.resume(*[_theirs(p) for p in partitions])

    def lag(self) -> dict[TopicPartition, int]:
        """Records between position and end."""
        partitions = sorted(self.assignment())
        with sorted_faults("reading end offsets"):
            ends = self._client.end_offsets([_theirs(p) for p in partitions]) if partitions else {}
        return {p: max(0, ends[_theirs(p)] - self.position(p)) for p in partitions}

    def read_to_end(self, topic: str) -> Iterator[Record]:
        """All records up to the present ends; see `Consumer.read_to_end`."""
        partitions = [_theirs(p) for p in self.partitions(topic)]
        reader = self._connect(None)
        try:
            with sorted_faults(f"reading {topic} to its end"):
                reader.assign(partitions)
                ends = reader.end_offsets(partitions)
                reader.seek_to_beginning()
                open_ = {p for p in partitions if reader.position(p, timeout_ms=READ_STALL_MS) < ends[p]}
                heard = time.monotonic()
                while open_:
                    batches = reader.poll(timeout_ms=500)
                    for place, batch in batches.items():
                        yield from (_record(raw) for raw in batch if raw.offset < ends[place])
                    if batches:
                        heard = time.monotonic()
                    elif time.monotonic() - heard > READ_STALL_MS / 1000:
                        raise TransientFault(f"Kafka, reading {topic} to its end: nothing for {READ_STALL_MS} ms")
                    open_ = {p for p in open_ if reader.position(p, timeout_ms=READ_STALL_MS) < ends[p]}
        finally:
            reader.close()

    def close(self) -> None:
        """Leave the group and let go."""
        self._client.close(autocommit=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
