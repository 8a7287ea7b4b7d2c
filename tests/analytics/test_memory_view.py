"""One view of weights and KV: who waits, who stays, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.memory_view import MAX_BATCH, MAX_SEQ_TOKENS, SHARD_TOKENS, MemoryView

MIB = 1 << 20
TOKEN = 16 * 1024
SHARD = SHARD_TOKENS * TOKEN


def view(mib: int = 256) -> MemoryView:
    return MemoryView(mib * MIB, TOKEN)


@pytest.mark.parametrize(
    ("tokens", "lengths"), [(1, [1]), (512, [512]), (513, [512, 1]), (1_300, [512, 512, 276]), (2_048, [512] * 4)]
)
def test_a_prompt_has_a_shard_for_every_512_tokens_side_by_side(tokens: int, lengths: list[int]) -> None:
    memory = view()
    assert memory.open("s", tokens) is None
    assert [shard.valid_len for shard in memory.shards("s")] == lengths
    assert [shard.base_offset for shard in memory.shards("s")] == [number * SHARD for number in range(len(lengths))]


def test_what_is_too_long_or_too_many_is_refused() -> None:
    memory = view(1024)
    assert memory.open("s", MAX_SEQ_TOKENS + 1) == "too_long"
    assert memory.open("s", 0) == "too_long"
    for number in range(MAX_BATCH):
        assert memory.open(f"s{number}", 1) is None
    assert memory.open("one more", 1) == "batch_full"
    memory.close("s0")
    assert memory.open("one more", 1) is None
    assert memory.failed.total == 0, "these are refused by rule, not for want of room"


def test_weights_wait_while_a_prefill_takes_contiguous_room_and_then_stay() -> None:
    memory = view(32)
    assert not memory.load("layer0.attn.q_proj", 8 * MIB)
    assert memory.waiting == ("layer0.attn.q_proj",)
    assert memory.open("s", 1_024) is None
    memory.enter("decode")
    assert memory.waiting == ()
    assert memory.weights == {"layer0.attn.q_proj": 16 * MIB}
    assert memory.load("layer0.attn.k_proj", 8 * MIB)
    assert memory.open("t", 1) == "no_room"
    assert set(memory.weights) == {"layer0.attn.q_proj", "layer0.attn.k_proj"}, "decode never drops weights"
    assert (memory.failed.kv, memory.failed.weights) == (1, 0)


def test_a_chunk_that_found_no_room_is_counted_and_one_that_is_there_is_there() -> None:
    memory = view(8)
    memory.enter("decode")
    assert memory.load("a", 8 * MIB)
    assert memory.load("a", 8 * MIB)
    assert not memory.load("b", 2 * MIB)
    assert memory.failed.weights == 1
    memory.drop("a")
    assert memory.load("b", 2 * MIB)
    memory.drop("a")
    assert memory.weights == {"b": 0}


def test_a_sequence_grows_token_by_token_into_a_freed_range() -> None:
    memory = view(16)
    memory.open("s", 512)
    memory.open("t", 512)
    memory.enter("decode")
    assert memory.append("s") == "no_room"
    freed = memory.shards("t")[0].base_offset
    memory.close("t")
    assert memory.append("s", 3) is None
    assert [(shard.base_offset, shard.valid_len) for shard in memory.shards("s")] == [(0, 512), (freed, 3)]
    assert memory.failed.growth == 1


def test_growth_ends_at_the_longest_sequence() -> None:
    memory = view()
    memory.open("s", MAX_SEQ_TOKENS - 1)
    assert memory.append("s") is None
    assert memory.append("s") == "too_long"


def test_kv_takes_scattered_pieces_where_no_room_is_contiguous() -> None:
    memory = view(32)
    for number in range(4):
        memory.open(f"s{number}", 512)
    memory.close("s0")
    memory.close("s2")
    assert memory.open("t", 1_024) is None
    assert [shard.base_offset for shard in memory.shards("t")] == [0, 2 * SHARD]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(1, 2_100)), max_size=60))
def test_nothing_overlaps_and_everything_comes_back(script: list[tuple[int, int, int]]) -> None:
    memory = view(64)
    total = memory.pool.free_bytes
    live: set[str] = set()
    for action, number, tokens in script:
        sequence, chunk = f"s{number}", f"layer{number}"
        if action == 0 and sequence not in live:
            if memory.open(sequence, tokens) is None:
                live.add(sequence)
        elif action == 1 and sequence in live:
            memory.append(sequence, tokens)
        elif action == 2 and sequence in live:
            memory.close(sequence)
            live.discard(sequence)
        elif action == 3:
            memory.load(chunk, tokens * 4_096)
        elif action == 4:
            memory.enter("decode" if tokens % 2 else "prefill")
        offsets = [shard.base_offset for each in live for shard in memory.shards(each)] + list(memory.weights.values())
        assert len(set(offsets)) == len(offsets)
        assert all(1 <= shard.valid_len <= SHARD_TOKENS for each in live for shard in memory.shards(each))
    for sequence in live:
        memory.close(sequence)
    for chunk in [*memory.weights, *memory.waiting]:
        memory.drop(chunk)
    assert memory.pool.free_bytes == total
