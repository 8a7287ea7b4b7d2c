"""Intake: the consumer of one pool's commands, on a thread of its own (steps 3 and 9).

Each pool is its own consumer group, and a group reads the whole topic and leaves out what is not its pool's. So
executors that serve the same pool share its commands, whichever other pools each of them serves.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from connectors.kafka.base import Consumer, Record, TopicPartition
from connectors.metrics import SILENT, MetricSink
from executor.commits import CommitTracker, Place
from executor.failpoints import reached
from schemas.errors import BrokenConfiguration, StackFault, TransientFault

log = logging.getLogger(__name__)

Deliver = Callable[[list[tuple[Record, Place]]], None]

POLL_MS = 100
BATCH = 200
COMMIT_EVERY_S = 0.2
PAUSE_AFTER_FAULT_S = 0.5
BALANCE_S = 15.0
"""A balance of the group ends within this, or the consumer is replaced."""
EMPTY_S = 10.0
LONGEST_EMPTY_S = 320.0
"""So long a member without partitions waits before it joins anew. Doubled each time and never shortened: in a group of
more members than partitions somebody is always without, and must not keep disturbing the others."""


class _Stalled(TransientFault):
    """The consumer has no assignment and will not get one."""


@dataclass(frozen=True)
class IntakeLimits:
    """How much an intake may hold.

    Attributes:
        open_records: above so many unfinished records it reads no further; they wait in Kafka.
    """

    open_records: int = 20_000


class Intake:
    """Reads, hands on, and commits what is finished.

    Args:
        pool: whose commands.
        make_consumer: a consumer of the pool's group; called on the intake's thread.
        topic: full name of warmup.commands.
        deliver: gets each batch; called on the intake's thread, must not block.
        revoked: told when partitions have gone elsewhere; called on the intake's thread, must not block.
    """

    def __init__(
        self,
        pool: str,
        make_consumer: Callable[[], Consumer],
        topic: str,
        deliver: Deliver,
        revoked: Callable[[frozenset[TopicPartition]], None] = lambda _: None,
        metrics: MetricSink = SILENT,
        limits: IntakeLimits = IntakeLimits(),
    ) -> None:
        self.pool = pool
        self.tracker = CommitTracker()
        self.failure: Exception | None = None
        self.joined = threading.Event()
        self._make_consumer = make_consumer
        self._topic = topic
        self._deliver = deliver
        self._on_revoked = revoked
        self._metrics = metrics
        self._limits = limits
        self._reading = threading.Event()
        self._leaving = threading.Event()
        self._partitions = 1
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._set_back: frozenset[TopicPartition] = frozenset()
        self._first_read: dict[TopicPartition, int] = {}
        self._waiting_since: float | None = None
        self._empty_since: float | None = None
        self._empty_s = EMPTY_S
        self._committed_at = 0.0
        self._thread = threading.Thread(target=self._run, name=f"intake-{pool}", daemon=True)

    def start(self) -> None:
        """Begins to read."""
        self._reading.set()
        self._thread.start()

    def stop_reading(self) -> None:
        """No further command is handed on; what is finished goes on being committed."""
        self._reading.clear()

    def leave(self, timeout_s: float) -> None:
        """Commits what is finished and leaves the group. Blocks for up to `timeout_s`."""
        self._reading.clear()
        self._leaving.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    @property
    def part(self) -> float:
        """Share of the topic's partitions that is ours; one of them at least, since nothing is read without any."""
        return max(1, len(self._assigned)) / self._partitions

    @property
    def started(self) -> bool:
        """Whether it has begun to read."""
        return self._thread.ident is not None

    @property
    def alive(self) -> bool:
        """Whether the thread does its work."""
        return self._thread.is_alive() and self.failure is None

    def _run(self) -> None:
        while not self._leaving.is_set():
            try:
                with self._make_consumer() as consumer:
                    self._partitions = len(consumer.partitions(self._topic))
                    self._waiting_since, self._empty_since = time.monotonic(), None
                    consumer.subscribe([self._topic], self)
                    self._serve(consumer)
            except (TransientFault, StackFault) as fault:
                log.warning("intake of %s: %s; beginning again", self.pool, fault)
                self._leaving.wait(PAUSE_AFTER_FAULT_S)
            except BrokenConfiguration as error:
                self.failure = error
                log.error("intake of %s: %s", self.pool, error)
                return
            except Exception as error:
                self.failure = error
                log.exception("intake of %s ended", self.pool)
                return

    def _serve(self, consumer: Consumer) -> None:
        while not self._leaving.is_set():
            try:
                self._hold_back(consumer)
                records = consumer.poll(POLL_MS, BATCH)
                self._demand_assignment()
                self._note_first(records)
                fresh = self._set_back
                if fresh:
                    self._partitions = max(1, len(consumer.partitions(self._topic)))
                    self._begin_where_the_group_is(consumer, fresh)
                    records = [record for record in records if record.place not in fresh]
                if records:
                    self._hand_on(records)
                self._commit(consumer)
            except _Stalled:
                raise
            except TransientFault as fault:
                log.warning("intake of %s: %s", self.pool, fault)
                self._leaving.wait(PAUSE_AFTER_FAULT_S)
        self._commit(consumer, at_once=True)

    def _hold_back(self, consumer: Consumer) -> None:
        if not self._reading.is_set() or self.tracker.open_records >= self._limits.open_records:
            consumer.pause(self._assigned)
        else:
            consumer.resume(self._assigned)

    def _demand_assignment(self) -> None:
        """A balance that does not end is begun anew, with a new consumer.

        kafka-python 3.0 can forget a balance that it has begun when the topic's metadata changes there and back: it
        then sends no heartbeats and reads nothing. And its leader deals out nothing when it joins before it knows the
        topic's partitions, and does not notice when it learns of them at that very moment. From inside, that looks like
        a group with more members than partitions.

        Raises:
            TransientFault: no assignment for too long.
        """
        now, since = time.monotonic(), self._waiting_since
        if since is not None and now - since > BALANCE_S:
            raise _Stalled(f"no assignment for {BALANCE_S:.0f} s")
        if self._empty_since is not None and now - self._empty_since > self._empty_s:
            waited_s, self._empty_s = self._empty_s, min(LONGEST_EMPTY_S, 2 * self._empty_s)
            raise _Stalled(f"in the group without a partition for {waited_s:.0f} s")

    def _note_first(self, records: list[Record]) -> None:
        for record in records:
            self._first_read.setdefault(record.place, record.offset)

    def _begin_where_the_group_is(self, consumer: Consumer, partitions: frozenset[TopicPartition]) -> None:
        """Sets newly assigned partitions back to the group's offset; what this poll brought of them comes again.

        kafka-python goes on from its own position when a balance gives it a partition that it had before. But what was
        read of it and not finished has been let go, because it might have gone elsewhere.
        """
        for partition in partitions:
            offset = consumer.committed(partition)
            offset = self._first_read.get(partition) if offset is None else offset
            if offset is not None:
                consumer.seek(partition, offset)
        self._set_back = self._set_back - partitions

    def _hand_on(self, records: list[Record]) -> None:
        batch = [(record, self.tracker.began(record.place, record.offset)) for record in records]
        self._deliver(batch)

    def _commit(self, consumer: Consumer, at_once: bool = False) -> None:
        if not at_once and time.monotonic() - self._committed_at < COMMIT_EVERY_S:
            return
        self._committed_at = time.monotonic()
        offsets = self.tracker.committable()
        if offsets:
            consumer.commit(offsets)
            self.tracker.committed(offsets)
            reached("offset_committed")

    def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """See `RebalanceListener.assigned`."""
        self._tell("assigned", partitions)
        self._waiting_since = None
        self.joined.set()
        self._assigned = self._assigned | partitions
        self._empty_since = None if self._assigned else time.monotonic()
        self._set_back = self._set_back | partitions
        self.tracker.assigned(partitions)

    def revoked(self, partitions: frozenset[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See `RebalanceListener.revoked`."""
        self._tell("revoked", partitions)
        self._waiting_since = time.monotonic()
        offsets = self.tracker.committable(partitions)
        self.tracker.revoked(partitions)
        self._assigned = self._assigned - partitions
        self._set_back = self._set_back - partitions
        self._on_revoked(partitions)
        return offsets

    def _tell(self, what: str, partitions: frozenset[TopicPartition]) -> None:
        numbers = sorted(place.partition for place in partitions)
        log.info("partitions %s", what, extra={"fields": {"pool": self.pool, "partitions": numbers}})
