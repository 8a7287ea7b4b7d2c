"""Contiguous commits: an offset is committed only when everything before it is terminal and published (step 9).

One tracker serves one consumer. The thread that polls and the event loop that finishes commands both use it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
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
    next_offset: int | None = None
    committed: int | None = None
    open: OrderedDict[int, bool] = field(default_factory=OrderedDict)

    def ready(self) -> int | None:
        """Offset of the next record to read after everything that is finished without a hole."""
        for offset, finished in self.open.items():
            if not finished:
                return offset
        return self.next_offset

    def forget_finished(self) -> None:
        while self.open and self.open[next(iter(self.open))]:
            self.open.popitem(last=False)


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
        """A record was read. Offsets of one partition come in rising order."""
        with self._lock:
            lane = self._lanes.setdefault(partition, _Lane(self._generation))
            lane.open[offset] = False
            lane.next_offset = offset + 1
            return Place(partition, offset, lane.generation)

    def finished(self, place: Place) -> None:
        """Every outcome of this record is published. Ignored if the partition has gone, or has gone and come back."""
        with self._lock:
            lane = self._lanes.get(place.partition)
            if lane is not None and lane.generation == place.generation and place.offset in lane.open:
                lane.open[place.offset] = True

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
                if lane is None:
                    continue
                lane.forget_finished()
                offset = lane.ready()
                if offset is not None and offset != lane.committed and lane.next_offset is not None:
                    found[partition] = offset
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
            return sum(not finished for lane in self._lanes.values() for finished in lane.open.values())
