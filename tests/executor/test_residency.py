"""What is said about residency, from events alone."""

from __future__ import annotations

from array import array

from connectors.engines.events import BlocksCleared, BlocksRemoved, BlocksStored, Gap
from executor.residency import ResidencyBook, Watched

IDS = tuple(range(100, 148))


def book(bound: int = 10) -> ResidencyBook:
    clock = iter(range(1, 1_000))
    return ResidencyBook("r0", "gpu", bound, lambda: next(clock))


def watched(key: str = "prefix:a", reported: int = 0, inherited: bool = False, ids=IDS) -> Watched:
    return Watched("acme", key, array("I", ids), None, None, reported, inherited)


def stored(ids=IDS, first: int = 1) -> BlocksStored:
    hashes = tuple(range(first, first + len(ids) // 16))
    return BlocksStored(hashes, None, tuple(ids), 16, None, None)


def told(book: ResidencyBook) -> list[tuple[str, int | None, str]]:
    return [(state.target_key, state.resident_tokens, state.source) for state in book.statements("i", 0)]


def test_a_prefix_is_told_once_and_its_loss_from_the_tail_on() -> None:
    it = book()
    it.on_event(BlocksCleared())
    it.on_event(stored())
    it.watch(watched())
    assert told(it) == [("prefix:a", 48, "events")]
    assert told(it) == []
    it.on_event(BlocksRemoved((3,)))
    assert told(it) == [("prefix:a", 32, "events")]
    it.on_event(BlocksRemoved((1,)))
    assert told(it) == [("prefix:a", 0, "events")]


def test_sequence_numbers_grow_even_when_the_clock_stands() -> None:
    it = ResidencyBook("r0", "gpu", 10, lambda: 7)
    it.on_event(BlocksCleared())
    for key, first in (("prefix:a", 1), ("prefix:b", 10)):
        ids = tuple(range(first * 1000, first * 1000 + 32))
        it.on_event(stored(ids, first))
        it.watch(watched(key, ids=ids))
    assert [state.seq for state in it.statements("i", 0)] == [7, 8]


def test_without_the_beginning_of_the_events_the_engines_word_stands_until_an_unknown_block_goes() -> None:
    it = book()
    it.on_event(Gap(0, 500))
    it.watch(watched(reported=48))
    assert told(it) == [("prefix:a", 48, "applied")]
    other = tuple(range(900, 916))
    it.on_event(stored(other, 77))
    it.on_event(BlocksRemoved((77,)))
    assert told(it) == [], "a block that is known not to be of this prefix"
    it.on_event(BlocksRemoved((4711,)))
    assert told(it) == [("prefix:a", 0, "events")]


def test_a_gap_or_a_restart_loses_everything() -> None:
    for lose in (lambda it: it.on_event(Gap(3, 9)), lambda it: it.on_restart()):
        it = book()
        it.on_event(BlocksCleared())
        it.on_event(stored())
        it.watch(watched())
        told(it)
        lose(it)
        assert told(it) == [("prefix:a", 0, "events")]


def test_nothing_is_said_of_a_prefix_that_was_never_there() -> None:
    it = book()
    it.on_event(BlocksCleared())
    it.watch(watched())
    assert told(it) == []


def test_what_another_holder_may_have_told_is_corrected_once_events_are_heard() -> None:
    it = book()
    it.watch(watched(inherited=True))
    assert told(it) == []
    it.on_event(BlocksCleared())
    assert told(it) == [("prefix:a", 0, "events")]


def test_the_prefix_warmed_longest_ago_is_dropped() -> None:
    it = book(bound=1)
    it.on_event(BlocksCleared())
    it.on_event(stored())
    it.watch(watched("prefix:a"))
    it.watch(watched("prefix:b"))
    assert [key for key, _, _ in told(it)] == ["prefix:b"]


def test_each_rank_has_a_view_of_its_own() -> None:
    it = book()
    it.expect([0, 1])
    it.on_event(BlocksCleared(rank=0))
    it.on_event(BlocksStored((1, 2, 3), None, IDS, 16, None, None, rank=0))
    it.watch(watched())
    other = watched("prefix:b", reported=32, ids=tuple(range(500, 548)))
    it.watch(other)
    assert told(it) == [("prefix:a", 48, "events"), ("prefix:b", 32, "applied")], "rank 1 may hold what rank 0 lacks"
    it.on_event(BlocksRemoved((1, 2, 3), rank=1))
    it.on_event(Gap(3, 9, rank=1))
    assert told(it) == [("prefix:b", 0, "events")], "rank 0 still has its blocks"
    it.on_event(BlocksCleared(rank=1))
    assert told(it) == []
    it.on_restart()
    assert told(it) == [("prefix:a", 0, "events")]
