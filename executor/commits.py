"""Contiguous commits: an offset is committed only when everything before it is terminal and published (step 9).

One tracker serves one consumer. The thread that polls and the event loop that finishes commands both use it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from connectors.kafka.base import TopicPartition


@dataclass(frozen=True)
class Place:
    """Where a command came from.

    Attributes:
        generation: which assignment of the partition delivered it. What an earlier one delivered is delivered again.
    """

    partition: TopicPartition
    offset: int
    generation: int


@dataclass
class _Lane:
    generation: int
    next_offset: int = -1
    committed: int = -1
    open: set[int] = field(default_factory=set)

    @property
    def ready(self) -> int:
        """Offset of the first record that is not finished, or of the next one to come."""
        return min(self.open, default=self.next_offset)


class CommitTracker:
    """Knows which offsets of the assigned partitions are finished, and how far the group may be moved."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._generation = 0

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """These are ours from now on, from the group's committed offset."""
        with self._lock:
            self._generation += 1
            for partition in partitions:
                self._lanes[partition] = _Lane(self._generation)

    def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """These are no longer ours: what is still open comes again, here or elsewhere."""
        with self._lock:
            for partition in partitions:
                self._lanes.pop(partition, None)

    def began(self, partition: TopicPartition, offset: int) -> Place:
        """A record was read. One that comes again, because a balance set the reader back, is simply open again."""
        with self._lock:
            lane = self._lanes.setdefault(partition, _Lane(self._generation))
            lane.open.add(offset)
            lane.next_offset = max(lane.next_offset, offset + 1)
            return Place(partition, offset, lane.generation)

    def finished(self, place: Place) -> None:
        """Every outcome of this record is published. Ignored if the partition has gone, or has gone and come back."""
        with self._lock:
            lane = self._lanes.get(place.partition)
            if lane is not None and lane.generation == place.generation:
                lane.open.discard(place.offset)

    def held(self, place: Place) -> bool:
        """Whether the record is still ours to finish."""
        with self._lock:
            lane = self._lanes.get(place.partition)
            return lane is not None and lane.generation == place.generation

    def committable(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Offsets that may be committed and are beyond what was committed before; of all partitions or of some."""
        with self._lock:
            found: dict[TopicPartition, int] = {}
            for partition in list(self._lanes) if partitions is None else partitions:
                lane = self._lanes.get(partition)
                if lane is not None and lane.ready > lane.committed:
                    found[partition] = lane.ready
            return found

    def committed(self, offsets: dict[TopicPartition, int]) -> None:
        """The broker has stored these."""
        with self._lock:
            for partition, offset in offsets.items():
                lane = self._lanes.get(partition)
                if lane is not None:
                    lane.committed = offset

    @property
    def open_records(self) -> int:
        """Records that were read and are not finished."""
        with self._lock:
            return sum(len(lane.open) for lane in self._lanes.values())
