"""Contiguous commits: what is committed never passes what is open."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from connectors.kafka.base import TopicPartition
from executor.commits import CommitTracker

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@given(st.permutations(range(12)), st.integers(0, 12))
def test_only_a_finished_beginning_is_committed(order, finished) -> None:
    tracker = CommitTracker()
    tracker.assigned([P0])
    places = [tracker.began(P0, offset) for offset in range(12)]
    for index in order[:finished]:
        tracker.finished(places[index])
    open_offsets = sorted(set(range(12)) - set(order[:finished]))
    assert tracker.committable() == {P0: open_offsets[0] if open_offsets else 12}
    assert tracker.open_records == 12 - finished


def test_what_is_committed_is_not_committed_again() -> None:
    tracker = CommitTracker()
    tracker.assigned([P0, P1])
    tracker.finished(tracker.began(P0, 5))
    assert tracker.committable() == {P0: 6}
    tracker.committed({P0: 6})
    assert tracker.committable() == {}


def test_a_partition_that_went_and_came_back_forgets_what_was_open() -> None:
    tracker = CommitTracker()
    tracker.assigned([P0])
    before = tracker.began(P0, 0)
    tracker.revoked([P0])
    assert not tracker.held(before)
    tracker.assigned([P0])
    again = tracker.began(P0, 0)
    tracker.finished(before)
    assert tracker.committable() == {P0: 0}
    tracker.finished(again)
    assert tracker.committable([P0, P1]) == {P0: 1}


def test_a_record_that_comes_twice_is_open_again() -> None:
    tracker = CommitTracker()
    tracker.assigned([P0])
    for offset in range(3):
        tracker.finished(tracker.began(P0, offset))
    tracker.committed(tracker.committable())
    tracker.began(P0, 1)
    assert tracker.committable() == {}
