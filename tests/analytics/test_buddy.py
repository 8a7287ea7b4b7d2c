"""The 2 MB buddy pool: nothing overlaps, nothing is lost, buddies merge."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.buddy import PIECE_BYTES, BuddyPool

actions = st.lists(st.one_of(st.integers(1, 9 * PIECE_BYTES), st.integers(-9, -1)), max_size=60)


@settings(deadline=None)
@given(actions, st.integers(1, 33))
def test_allocations_never_overlap_and_all_comes_back(script: list[int], pieces: int) -> None:
    pool = BuddyPool(pieces * PIECE_BYTES + 5)
    taken: dict[int, int] = {}
    for action in script:
        if action > 0:
            size = 1 << (-(-action // PIECE_BYTES) - 1).bit_length()
            offset = pool.allocate(action)
            if offset is None:
                assert pool.largest_free_bytes < size * PIECE_BYTES
            else:
                taken[offset] = size * PIECE_BYTES
                assert offset % (size * PIECE_BYTES) == 0
        elif taken:
            offset = sorted(taken)[-action % len(taken)]
            del taken[offset]
            pool.give_back(offset)
        spans = sorted((offset, offset + size) for offset, size in taken.items())
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        assert all(end <= pool.total_bytes for _, end in spans)
        assert pool.free_bytes == pool.total_bytes - sum(taken.values())
        assert 0 <= pool.fragmentation < 1
    for offset in list(taken):
        pool.give_back(offset)
    fresh = BuddyPool(pieces * PIECE_BYTES)
    assert (pool.free_bytes, pool.largest_free_bytes) == (fresh.free_bytes, fresh.largest_free_bytes)


def test_giving_back_what_was_not_given_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        BuddyPool(PIECE_BYTES).give_back(0)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 33), st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3 * PIECE_BYTES)), max_size=8))
def test_a_run_follows_itself_and_every_piece_of_it_comes_back(pieces: int, runs: list[tuple[int, int]]) -> None:
    pool = BuddyPool(pieces * PIECE_BYTES)
    before = pool.free_bytes
    taken: list[int] = []
    for count, size_bytes in runs:
        size = (1 << (-(-size_bytes // PIECE_BYTES) - 1).bit_length()) * PIECE_BYTES
        free = pool.free_bytes
        offsets = pool.allocate_run(count, size_bytes)
        if offsets is None:
            assert pool.free_bytes == free
            continue
        assert [offset - offsets[0] for offset in offsets] == [number * size for number in range(count)]
        assert free - pool.free_bytes == count * size, "what the run does not need stays free"
        taken += offsets
    assert len(set(taken)) == len(taken)
    for offset in taken:
        pool.give_back(offset)
    assert pool.free_bytes == before
