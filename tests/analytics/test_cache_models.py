"""Caches of runs against caches of single blocks, and against what is published of a real trace."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.cache_models import EndlessCache, LruCache, Run, belady, cut, size
from stoker.replay.mooncake import TRACE_BLOCK_TOKENS, read_trace

TREE = {"a": None, "b": "a", "c": "b", "d": "b", "e": "a", "f": None}
"""Parent of each segment: a prompt is a path from a root."""


def path_to(name: str) -> list[str]:
    path: list[str] = []
    step: str | None = name
    while step is not None:
        path.insert(0, step)
        step = TREE[step]
    return path


@st.composite
def traffic(draw: st.DrawFn) -> list[list[Run]]:
    sizes = {name: draw(st.integers(1, 3)) for name in TREE}
    ends = draw(st.lists(st.sampled_from(sorted(TREE)), min_size=1, max_size=30))
    return [[Run(step, sizes[step]) for step in path_to(end)] for end in ends]


def blocks_of(prompt: list[Run]) -> list[tuple[str, int]]:
    return [(str(run.key), number) for run in prompt for number in range(run.blocks)]


def lru_of_blocks(prompts: list[list[Run]], capacity: int) -> list[int]:
    """One block at a time, as an engine does."""
    held: OrderedDict[tuple[str, int], None] = OrderedDict()
    found = []
    for prompt in prompts:
        blocks = blocks_of(prompt)
        there = 0
        for block in blocks:
            if block not in held:
                break
            there += 1
        found.append(there)
        for block in reversed(blocks):
            held[block] = None
            held.move_to_end(block)
        while len(held) > capacity:
            held.popitem(last=False)
    return found


@given(traffic(), st.integers(1, 12))
def test_runs_are_evicted_as_their_blocks_would_be(prompts: list[list[Run]], capacity: int) -> None:
    cache = LruCache(capacity)
    assert [cache.request(prompt) for prompt in prompts] == lru_of_blocks(prompts, capacity)


@given(traffic(), st.integers(1, 12))
def test_the_future_is_worth_something_and_memory_without_end_most(prompts: list[list[Run]], capacity: int) -> None:
    lru, endless = LruCache(capacity), EndlessCache()
    past = sum(lru.request(prompt) for prompt in prompts)
    everything = sum(endless.request(prompt) for prompt in prompts)
    assert past <= sum(belady(prompts, capacity)) <= everything


@given(traffic())
def test_with_room_for_all_every_cache_finds_what_was_there_before(prompts: list[list[Run]]) -> None:
    lru, endless = LruCache(100), EndlessCache()
    expected = [endless.request(prompt) for prompt in prompts]
    assert [lru.request(prompt) for prompt in prompts] == expected
    assert belady(prompts, 100) == expected


def test_belady_keeps_what_comes_back_and_lets_a_scan_pass() -> None:
    scan = [[Run(f"once-{number}", 4)] for number in range(5)]
    prompts = [[Run("kept", 4)], *scan, [Run("kept", 4)]]
    lru = LruCache(4)
    assert [lru.request(prompt) for prompt in prompts][-1] == 0
    assert belady(prompts, 4)[-1] == 4


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(0, 70)), max_size=20), st.integers(1, 32))
def test_a_prompt_has_as_many_runs_as_full_blocks(segments: list[tuple[str, int]], block_tokens: int) -> None:
    runs = cut(segments, block_tokens)
    assert size(runs) == sum(tokens for _, tokens in segments) // block_tokens
    assert all(run.blocks > 0 for run in runs)


def test_a_prefix_loses_its_tail_first() -> None:
    cache = LruCache(4)
    prompt = [Run("head", 2), Run("tail", 2)]
    cache.request(prompt)
    cache.request([Run("other", 1)])
    assert cache.found(prompt) == 3
    assert (cache.held("head"), cache.held("tail")) == (2, 1)


def test_the_published_figures_of_a_real_trace_come_out(data_dir: Path) -> None:
    """algorithms.md §3: LRU .1361 and infinite .366 to the digit, Belady .350 (ours may lose tails first)."""
    lines = read_trace(data_dir / "traces" / "mooncake_conversation_trace.jsonl.gz")
    prompts = [cut([(block, TRACE_BLOCK_TOKENS) for block in line.hash_ids], TRACE_BLOCK_TOKENS) for line in lines]
    total = sum(map(size, prompts))
    capacity = 3_000_000 // TRACE_BLOCK_TOKENS
    lru, endless = LruCache(capacity), EndlessCache()
    assert sum(lru.request(prompt) for prompt in prompts) / total == pytest.approx(0.1361, abs=0.0002)
    assert sum(endless.request(prompt) for prompt in prompts) / total == pytest.approx(0.3664, abs=0.0002)
    assert sum(belady(prompts, capacity)) / total == pytest.approx(0.3504, abs=0.005)
