"""The shadow LRU: like the simulator's pool, as far as it claims to be."""

from __future__ import annotations

import random

from stoker.demo.shadow import PatientShadow, ShadowLru
from stoker.simulator.blocks import BlockPool


def test_what_was_not_touched_longest_leaves_first_and_a_tail_before_its_head() -> None:
    pool = ShadowLru(100)
    assert pool.request(("s", "a", "q"), (20, 30, 10)) == 0
    assert pool.request(("s", "b"), (20, 30)) == 1
    assert pool.request(("s", "c"), (20, 15)) == 1  # 105 tokens: the question goes, the document stays
    assert pool.request(("s", "a", "q"), (20, 30, 10)) == 2  # 105 again: now b is the oldest
    assert pool.request(("s", "b"), (20, 30)) == 1
    assert pool.request(("s", "c"), (20, 15)) == 1
    assert pool.request(("s", "b"), (20, 30)) == 2


def test_a_request_larger_than_the_pool_leaves_room_for_nothing() -> None:
    pool = ShadowLru(50)
    pool.request(("a", "b"), (30, 40))
    assert pool.request(("a", "b"), (30, 40)) == 1, "the head outlives the tail"


def test_it_agrees_with_the_simulators_pool_on_whole_blocks() -> None:
    source = random.Random(7)
    shadow, pool = ShadowLru(60), BlockPool(61, 1)
    agreed = asked = 0
    for _ in range(2_000):
        family = source.randrange(12)
        segments = ("s", f"f{family}")
        blocks = [
            f"{segment}/{index}".encode()
            for segment, size in zip(segments, (4, 8), strict=True)
            for index in range(size)
        ]
        found = shadow.request(segments, (4, 8))
        # The last token of a prompt is always computed again, so one more token follows.
        held = pool.admit(blocks, 13, 13)
        assert held is not None
        agreed += (found == 2) == (held.hit_blocks == 12)
        asked += 1
        pool.store(held, 12)
        pool.release(held)
    assert agreed / asked > 0.9


def test_blocks_that_no_segment_fills_and_answers_count_as_in_the_engine() -> None:
    pool = PatientShadow(160, block_tokens=16)
    assert pool.request(("s", "q"), (40, 20), answer_tokens=12) == 0
    assert pool.request(("s", "r"), (40, 20), answer_tokens=12) == 32, "of 40 tokens two blocks are full"
    # The system prompt's two blocks and two more of each request, one of them filled by its answer: four are left.
    assert pool.request(("x",), (80,)) == 0
    assert pool.request(("s", "q"), (40, 20)) == 48, "only the first answer had to leave"


def test_a_segment_that_lost_its_tail_counts_as_lost_and_its_head_as_tokens() -> None:
    timeless, patient = ShadowLru(100), PatientShadow(100)
    for segment, tokens in (("a", 60), ("b", 70)):
        timeless.request((segment,), (tokens,))
        patient.request((segment,), (tokens,))
    assert timeless.request(("a",), (60,)) == 0
    assert patient.request(("a",), (60,)) == 30


def test_what_is_still_being_computed_is_not_found_and_what_failed_never_is() -> None:
    pool = PatientShadow(100)
    assert pool.request(("a",), (10,), at_ms=0, ttft_ms=50) == 0
    assert pool.request(("a",), (10,), at_ms=49, ttft_ms=50) == 0
    assert pool.request(("a",), (10,), at_ms=50, ttft_ms=0) == 10
    assert pool.request(("b",), (10,), at_ms=60, ttft_ms=None) == 0
    assert pool.request(("b",), (10,), at_ms=1_000) == 0
