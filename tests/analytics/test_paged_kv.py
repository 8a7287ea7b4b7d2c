"""Sizes of a paged KV cache and its reserve."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from analytics.paged_kv import PagedKv, Reserve


def test_the_example_of_the_specification() -> None:
    size = PagedKv()
    assert (size.host_num_blocks, size.host_max_num_blocks, size.max_num_tokens) == (1_024, 2_048, 8_192)
    assert PagedKv(max_seq_tokens=100, max_batch=3, block_tokens=64).host_num_blocks == 5


def test_the_reserve_grows_to_its_cap_and_then_refuses() -> None:
    reserve = Reserve(PagedKv(max_seq_tokens=64, max_batch=4, block_tokens=64))
    assert [reserve.take(3), reserve.take(2)] == [True, True]
    assert (reserve.reserved, reserve.grown) == (8, 1)
    assert [reserve.take(4), reserve.take(3)] == [False, True]
    assert (reserve.held, reserve.refused) == (8, 1)
    reserve.give_back(5)
    assert reserve.take(4)
    assert (reserve.reserved, reserve.grown) == (8, 1), "what was reserved stays"


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=60))
def test_never_more_is_held_than_reserved_nor_reserved_than_the_cap(script: list[tuple[bool, int]]) -> None:
    size = PagedKv(max_seq_tokens=640, max_batch=3, block_tokens=64)
    reserve, held = Reserve(size), []
    for taking, blocks in script:
        if taking:
            fits = sum(held) + blocks <= size.host_max_num_blocks
            assert reserve.take(blocks) is fits
            held += [blocks] if fits else []
        elif held:
            reserve.give_back(held.pop())
        assert sum(held) == reserve.held <= reserve.reserved <= size.host_max_num_blocks
