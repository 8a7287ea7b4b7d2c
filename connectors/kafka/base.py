"""The Kafka ports. Their docstrings are the contract; tests/contracts/test_kafka.py holds real and fake to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

from schemas.topics import TOPICS, Topic

Headers = Sequence[tuple[str, bytes]]


class TopicPartition(NamedTuple):
    """One partition of one topic, by its full name on the broker."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it was read.

    Attributes:
        timestamp_ms: the record's time: the producer's own, or the broker's where a topic says so; -1 if it has none.
        value: None is a tombstone.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def place(self) -> TopicPartition:
        """The partition it was read from."""
        return TopicPartition(self.topic, self.partition)


class Position(NamedTuple):
    """Where a delivered record landed."""

    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True)
class Difference:
    """One way in which a topic on the broker is not what `schemas.topics` says.

    Attributes:
        setting: `exists`, `partitions` or the Kafka name of a topic configuration.
    """

    topic: str
    setting: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.setting} is {self.found}, expected {self.expected}"


class Admin(Protocol):
    """Creates and checks topics. Blocking; one thread at a time.

    Every method raises `StackFault` when no broker answers, `BrokenConfiguration` when the broker refuses the login or
    the right, `TransientFault` when it asks to come back later.
    """

    def create(self, topics: Sequence[Topic] = TOPICS, *, local: bool = True, replication: int = 1) -> list[str]:
        """Create the topics that do not exist and return their full names, in the order given.

        A topic that exists is left alone, whatever its settings: `check` names those. Creating twice is harmless, also
        when two processes do it at once. Returns when every new partition has a leader.

        Args:
            local: take `partitions_local` of a topic instead of its production count.
            replication: copies of every partition (≥ 1).
        """

    def check(self, topics: Sequence[Topic] = TOPICS, *, local: bool = True) -> list[Difference]:
        """Compare what is on the broker with what `topics` asks for; an empty list means equal. Changes nothing."""

    def names(self) -> frozenset[str]:
        """Full names of all topics on the broker, Stoker's or not; internal ones left out."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete topics by full name; names that do not exist are ignored. Returns once the broker has agreed."""

    def close(self) -> None:
        """Let go of the connections. Calling it twice is harmless."""


class Delivery(Protocol):
    """What becomes of one record that was sent."""

    @property
    def done(self) -> bool:
        """Whether the broker has answered, for good or ill. Never blocks."""

    def wait(self, timeout_ms: int = 30_000) -> Position:
        """Block until the broker has the record.

        Raises:
            TransientFault: not delivered within `timeout_ms`, or given up after the delivery timeout. The record may or
                may not be in the log: sending it again can make a duplicate.
            RefusedCommand: the broker refuses this record for good.
        """


class Producer(Protocol):
    """Appends records. Safe for several threads; order is kept per partition of one producer.

    Records with equal keys go to the same partition (murmur2, like the Java client). A record is repeated until it is
    delivered or the delivery timeout has passed, without duplicates (idempotent producer) while this process lives.
    """

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> Delivery:
        """Queue one record and return at once; it may block while the topic is still unknown or the buffer is full.

        A `timestamp_ms` of more than 30 s ahead of this machine's clock is set back to that bound and counted, because
        the broker would refuse the whole batch of such a record; None means now. Old times are kept.

        Raises:
            RefusedCommand: the record is larger than the topics accept (2 MiB). Other records are not touched.
            TransientFault: the topic stays unknown or the buffer full for too long.
            ValueError: neither key nor value, or an impossible time.
        """

    def flush(self, timeout_ms: int = 30_000) -> None:
        """Block until every record sent before this call is answered.

        Raises the first failure since the last flush: once flush returns, all of them are in the log.

        Raises:
            TransientFault: a record was given up, or the time was not enough; unanswered ones stay queued.
            RefusedCommand: nothing worse happened than that the broker refused a record for good.
        """

    def close(self, timeout_ms: int = 30_000) -> None:
        """Send what is queued, within the time given, and let go. Twice is harmless; raises nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class RebalanceListener(Protocol):
    """Told when the group hands out partitions anew: during `Consumer.poll` or `close`, maybe on another thread.

    The caller of `poll` waits meanwhile, so its state may be read and changed, but no method of the consumer may be
    called from here. Be quick: the whole group waits. Must not raise.
    """

    def revoked(self, partitions: frozenset[TopicPartition]) -> Mapping[TopicPartition, int]:
        """These are about to go to another member.

        Returns:
            the last offsets to store for them, as for `Consumer.commit`; may be empty. If the group has thrown this
            member out already they are not stored, which is counted, and their records come again elsewhere.
        """

    def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """These are ours from now on, at the group's committed offset, else at the earliest record."""


class Consumer(Protocol):
    """Reads records. One thread at a time; never commits by itself.

    It is either subscribed (the group assigns partitions) or assigned by hand, never both. Without a committed offset
    it starts at the earliest record. Methods raise `TransientFault` for what may pass, `StackFault` when the broker or
    a topic is not there, `BrokenConfiguration` when login or rights are refused.
    """

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener | None = None) -> None:
        """Join the group for these topics. Partitions come with a later `poll`. Needs a group.

        Raises `StackFault` if a topic does not exist.
        """

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, outside the group's balance, though at the group's committed offsets."""

    def assignment(self) -> frozenset[TopicPartition]:
        """What this consumer reads at this moment."""

    def partitions(self, topic: str) -> tuple[TopicPartition, ...]:
        """All partitions of a topic, in order. Raises `StackFault` if the topic does not exist."""

    def poll(self, timeout_ms: int, max_records: int = 500) -> list[Record]:
        """Next records, at most `max_records`, as soon as there are any; an empty list after `timeout_ms`.

        In order within a partition; none is skipped and none comes twice while the partition stays assigned. Must be
        called at least every five minutes, else the group takes the partitions away.
        """

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Store, for the group, the offset of the NEXT record to read of each partition. Blocks until it is stored.

        The caller passes only offsets before which everything is finished; an offset is stored as given, even a smaller
        one. An empty mapping does nothing.

        Raises:
            TransientFault: not stored: a partition is no longer ours, or the group is being balanced. Those records
                will come again, here or elsewhere.
        """

    def committed(self, partition: TopicPartition) -> int | None:
        """The group's stored offset, or None."""

    def position(self, partition: TopicPartition) -> int:
        """Offset of the next record that `poll` will return of an assigned partition."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue an assigned partition at `offset`."""

    def offsets_at(self, partitions: Iterable[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        """Where each partition's first record stands that is not older than a record time; its end if there is none."""

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Keep these assigned but let `poll` return nothing of them. A new assignment starts unpaused."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`."""

    def lag(self) -> dict[TopicPartition, int]:
        """Records between position and end of every assigned partition. Asks the broker."""

    def read_to_end(self, topic: str) -> Iterator[Record]:
        """All records of a topic from the earliest to the ends it has at the time of the call, then stop.

        For what must be complete before work begins: policy, ledger. Touches neither group, assignment nor position of
        this consumer. In order per partition only. On a compacted topic older records of a key may or may not come.
        """

    def close(self) -> None:
        """Leave the group and let go; `revoked` is called for what was assigned. Twice is harmless."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...
