"""A broker in memory that keeps the contract of `base`: partitions, offsets, groups, commits, times, refusals.

One `MemoryBroker` is one cluster; any number of producers and consumers share it, from any thread. Groups are balanced
by range at the members' next `poll`, everything revoked first, like the eager protocol of the real client.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from kafka.partitioner.default import murmur2

from connectors.kafka.base import Difference, Headers, Position, RebalanceListener, Record, TopicPartition
from connectors.kafka.faults import BROKER_REFUSED
from connectors.kafka.producer import clamped_ms, wall_clock_ms
from connectors.settings import KafkaSettings
from schemas.errors import RefusedCommand, StackFault, TransientFault
from schemas.topics import MAX_MESSAGE_BYTES, TOPICS, Topic


@dataclass
class _Group:
    members: list[MemoryConsumer] = field(default_factory=list)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    generation: int = 0


class MemoryBroker:
    """The cluster. `offline = True` makes every call fail as if the broker were gone.

    Args:
        now_ms: its clock and that of its producers.
    """

    def __init__(self, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self.now_ms = now_ms
        self.offline = False
        self.changed = threading.Condition()
        self.logs: dict[TopicPartition, list[Record]] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.groups: dict[str, _Group] = {}
        self._next_keyless = 0

    def add_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Create a topic by hand."""
        with self.changed:
            self.configs[name] = dict(config or {})
            for number in range(partitions):
                self.logs[TopicPartition(name, number)] = []

    def partitions(self, topic: str) -> tuple[TopicPartition, ...]:
        """All partitions of a topic, in order; empty if there is no such topic."""
        return tuple(sorted(place for place in self.logs if place.topic == topic))

    def require(self) -> None:
        """Raise what a client sees when the broker is gone."""
        if self.offline:
            raise TransientFault("Kafka: the broker is offline")

    def append(
        self, topic: str, partition: int | None, key: bytes | None, value: bytes | None, time_ms: int, headers: Headers
    ) -> Position:
        """Write one record and wake the readers."""
        with self.changed:
            places = self.partitions(topic)
            if not places:
                raise TransientFault(f"Kafka: topic {topic} is unknown")
            if partition is None:
                if key is None:
                    self._next_keyless += 1
                    partition = self._next_keyless % len(places)
                else:
                    partition = (murmur2(key) & 0x7FFFFFFF) % len(places)
            log = self.logs[TopicPartition(topic, partition)]
            log.append(Record(topic, partition, len(log), time_ms, key, value, tuple(headers)))
            self.changed.notify_all()
            return Position(partition, len(log) - 1, time_ms)

    def group(self, name: str) -> _Group:
        """A group, made on first use."""
        return self.groups.setdefault(name, _Group())


class MemoryAdmin:
    """`Admin` of a MemoryBroker."""

    def __init__(self, broker: MemoryBroker, settings: KafkaSettings | None = None) -> None:
        self._broker = broker
        self._settings = settings or KafkaSettings()

    def create(self, topics: Sequence[Topic] = TOPICS, *, local: bool = True, replication: int = 1) -> list[str]:  # noqa: ARG002 one copy is all a memory has
        """Create the topics that do not exist."""
        created = []
        for topic in topics:
            name = self._settings.topic(topic)
            if name not in self.names():
                self._broker.add_topic(name, topic.partitions_local if local else topic.partitions, topic.config())
                created.append(name)
        return created

    def check(self, topics: Sequence[Topic] = TOPICS, *, local: bool = True) -> list[Difference]:
        """Compare broker and plan."""
        differences = []
        for topic in topics:
            name = self._settings.topic(topic)
            if name not in self.names():
                differences.append(Difference(name, "exists", "yes", "no"))
                continue
            expected = topic.partitions_local if local else topic.partitions
            found = len(self._broker.partitions(name))
            if found != expected:
                differences.append(Difference(name, "partitions", str(expected), str(found)))
            config = self._broker.configs[name]
            differences += [
                Difference(name, setting, value, str(config.get(setting)))
                for setting, value in topic.config().items()
                if config.get(setting) != value
            ]
        return differences

    def names(self) -> frozenset[str]:
        """Full names of all topics."""
        if self._broker.offline:
            raise StackFault("Kafka does not answer: the broker is offline")
        return frozenset(self._broker.configs)

    def delete(self, names: Iterable[str]) -> None:
        """Delete topics; unknown names are ignored."""
        with self._broker.changed:
            for name in names:
                self._broker.configs.pop(name, None)
                for place in self._broker.partitions(name):
                    del self._broker.logs[place]

    def close(self) -> None:
        """Nothing to let go."""


@dataclass(frozen=True)
class _Delivered:
    position: Position | None

    @property
    def done(self) -> bool:
        return True

    def wait(self, timeout_ms: int = 30_000) -> Position:  # noqa: ARG002 a memory answers at once
        if self.position is None:
            raise TransientFault("Kafka: the broker was offline when this record was sent")
        return self.position


class MemoryProducer:
    """`Producer` of a MemoryBroker; records sent while it is offline are given up at once."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._failure: TransientFault | None = None

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> _Delivered:
        """Append one record."""
        if key is None and value is None:
            raise ValueError("a record needs a key or a value")
        time_ms = clamped_ms(timestamp_ms, self._broker.now_ms())
        size = len(key or b"") + len(value or b"") + sum(len(name) + len(content) for name, content in headers)
        if size > MAX_MESSAGE_BYTES:
            raise RefusedCommand(f"Kafka, sending to {topic}: {size} bytes are more than a topic takes", BROKER_REFUSED)
        if self._broker.offline:
            self._failure = self._failure or TransientFault(f"Kafka, sending to {topic}: the broker is offline")
            return _Delivered(None)
        return _Delivered(self._broker.append(topic, partition, key, value, time_ms, headers))

    def flush(self, timeout_ms: int = 30_000) -> None:  # noqa: ARG002 a memory answers at once
        """Raise the first failure since the last flush."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self, timeout_ms: int = 30_000) -> None:
        """Nothing to let go."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MemoryConsumer:
    """`Consumer` of a MemoryBroker."""

    def __init__(self, broker: MemoryBroker, group: str | None = None) -> None:
        self._broker = broker
        self._group = None if group is None else broker.group(group)
        self._topics: tuple[str, ...] = ()
        self._listener: RebalanceListener | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._joined = 0
        self._generation = 0

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener | None = None) -> None:
        """Join the group."""
        if self._group is None:
            raise ValueError("a consumer without a group cannot subscribe")
        for topic in topics:
            self.partitions(topic)
        with self._broker.changed:
            self._topics, self._listener = tuple(topics), listener
            if self not in self._group.members:
                self._group.members.append(self)
            self._group.generation += 1
            self._broker.changed.notify_all()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these."""
        self._positions = {p: self._start(p) for p in partitions}
        self._paused.clear()

    def _start(self, partition: TopicPartition) -> int:
        return 0 if self._group is None else self._group.committed.get(partition, 0)

    def assignment(self) -> frozenset[TopicPartition]:
        """What is read now."""
        return frozenset(self._positions)

    def partitions(self, topic: str) -> tuple[TopicPartition, ...]:
        """All partitions of a topic."""
        found = self._broker.partitions(topic)
        if not found:
            raise StackFault(f"Kafka topic {topic} does not exist; create the topics (`stoker stack up`)")
        return found

    def _balance(self) -> None:
        """Give up the old share when the group changed; take the new one once all members have done so."""
        group = self._group
        if group is None or self not in group.members:
            return
        if self._joined != group.generation:
            self._hand_back(group)
            with self._broker.changed:
                self._joined = group.generation
                self._broker.changed.notify_all()
        if self._generation == group.generation or any(m._joined != group.generation for m in group.members):
            return
        with self._broker.changed:
            self._generation = group.generation
            self._positions = {p: self._start(p) for topic in self._topics for p in self._share(group, topic)}
            self._paused.clear()
        if self._listener is not None:
            self._listener.assigned(self.assignment())

    def _hand_back(self, group: _Group) -> None:
        if self._listener is not None and self._positions:
            group.committed.update(self._listener.revoked(self.assignment()))
        self._positions = {}

    def _share(self, group: _Group, topic: str) -> tuple[TopicPartition, ...]:
        takers = [member for member in group.members if topic in member._topics]
        places = self._broker.partitions(topic)
        share, extra = divmod(len(places), len(takers))
        turn = takers.index(self)
        first = turn * share + min(turn, extra)
        return places[first : first + share + (turn < extra)]

    def poll(self, timeout_ms: int, max_records: int = 500) -> list[Record]:
        """Next records."""
        self._broker.require()
        self._balance()
        deadline = time.monotonic() + timeout_ms / 1000
        with self._broker.changed:
            while not (records := self._take(max_records)):
                left = deadline - time.monotonic()
                if left <= 0 or not self._broker.changed.wait(left):
                    return []
            return records

    def _take(self, max_records: int) -> list[Record]:
        taken: list[Record] = []
        for place in sorted(self._positions.keys() - self._paused):
            start = self._positions[place]
            batch = self._broker.logs[place][start : start + max_records - len(taken)]
            self._positions[place] = start + len(batch)
            taken += batch
        return taken

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Store offsets."""
        if not offsets:
            return
        if self._group is None:
            raise ValueError("a consumer without a group cannot commit")
        self._broker.require()
        strangers = offsets.keys() - self._positions.keys()
        if strangers:
            raise TransientFault(f"Kafka, committing: no longer assigned: {sorted(strangers)}")
        self._group.committed.update(offsets)

    def committed(self, partition: TopicPartition) -> int | None:
        """The group's stored offset."""
        return None if self._group is None else self._group.committed.get(partition)

    def position(self, partition: TopicPartition) -> int:
        """Offset of the next record."""
        return self._positions[partition]

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at `offset`."""
        self._positions[partition] = offset

    def offsets_at(self, partitions: Iterable[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        """Offsets by record time."""
        self._broker.require()
        logs = {place: self._broker.logs[place] for place in partitions}
        return {
            place: next((record.offset for record in log if record.timestamp_ms >= time_ms), len(log))
            for place, log in logs.items()
        }

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return nothing of these for now."""
        self._paused.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`."""
        self._paused.difference_update(partitions)

    def lag(self) -> dict[TopicPartition, int]:
        """Records between position and end."""
        self._broker.require()
        return {p: len(self._broker.logs[p]) - start for p, start in sorted(self._positions.items())}

    def read_to_end(self, topic: str) -> Iterator[Record]:
        """All records up to the present ends."""
        self._broker.require()
        snapshot = [list(self._broker.logs[place]) for place in self.partitions(topic)]
        for log in snapshot:
            yield from log

    def close(self) -> None:
        """Leave the group."""
        if self._group is not None and self in self._group.members:
            self._hand_back(self._group)
            with self._broker.changed:
                self._group.members.remove(self)
                self._group.generation += 1
                self._broker.changed.notify_all()
        self._positions = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
