"""The view that is built from KV events agrees with the pool that sent them, whatever happens."""

from __future__ import annotations

import asyncio
from array import array
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.engines import BlocksStored, Gap
from connectors.engines.kv_events import decode_batch
from connectors.engines.residency import BlockView
from stoker.simulator.chain import block_hashes, chain_root
from stoker.simulator.config import SimulatorConfig
from stoker.simulator.engine import SimulatedEngine
from stoker.simulator.work import Work

BLOCK = 2
Request = tuple[list[int], int, str | None]


class Feed:
    """A publisher that writes into a view, through the wire form."""

    def __init__(self) -> None:
        self.view = BlockView()

    def publish(self, events: list[dict[str, Any]]) -> None:
        for event in decode_batch(msgspec.msgpack.encode([0.0, events, 0])):
            self.view.apply(event)


async def play(script: list[Request], resets: set[int]) -> None:
    feed = Feed()
    config = SimulatorConfig(block_tokens=BLOCK, num_blocks=9, kv_bytes_per_token=1, weight_bytes=1)
    replica = SimulatedEngine(config, feed)  # type: ignore[arg-type]
    for number, (ids, answer, salt) in enumerate(script):
        packed = array("I", ids).tobytes()
        async with replica.request(Work("r", packed, answer, "length", salt=salt)) as words:
            async for _ in words:
                pass
        if number in resets:
            assert replica.reset_prefix_cache()
        if replica._untold:
            continue  # a reset is told with the next batch only
        for known, _answer, known_salt in script:
            hashes = block_hashes(array("I", known).tobytes(), BLOCK, chain_root(None, known_salt))
            expected = replica.pool.resident_blocks(hashes) * BLOCK
            assert feed.view.resident_tokens(known, salt=known_salt) == expected
        assert len(feed.view) == replica.pool.idle


requests = st.tuples(
    st.lists(st.integers(0, 1), min_size=1, max_size=9), st.integers(1, 4), st.sampled_from((None, "a", "b"))
)


@settings(max_examples=100, deadline=None)
@given(st.lists(requests, max_size=12), st.sets(st.integers(0, 11), max_size=2))
def test_it_follows_the_pool(script: list[Request], resets: set[int]) -> None:
    asyncio.run(play(script, resets))


def test_a_gap_empties_it() -> None:
    view = BlockView()
    view.apply(BlocksStored((7,), None, (1, 2), 2, None, None))
    assert view.resident_tokens([1, 2, 3]) == 2
    view.apply(Gap(1, 5))
    assert view.resident_tokens([1, 2, 3]) == 0
    assert not view.complete


def test_blocks_in_host_memory_do_not_count() -> None:
    view = BlockView()
    view.apply(BlocksStored((7,), None, (1, 2), 2, None, None, medium="CPU"))
    assert view.resident_tokens([1, 2]) == 0
