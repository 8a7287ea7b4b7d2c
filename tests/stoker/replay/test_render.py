"""The hash chain against the canonical forms, and token counts that are asked for once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schemas import Render
from schemas.canonical import h128
from stoker.replay.render import TokenCounts, chain, rendered
from stoker.replay.turns import Piece

SYSTEM, QUESTION = Piece("system", "be kind"), Piece("user", "what now?")


def test_the_chain_is_the_one_of_the_design() -> None:
    root = h128("tiny", "", "t", "o")
    first = h128(root, "system", "be kind")
    segments = chain([SYSTEM, QUESTION], [4, 5], "tiny", Render("t", "o"))
    assert [segment.hash for segment in segments] == [first, h128(first, "user", "what now?")]
    assert [(segment.role, segment.tokens) for segment in segments] == [("system", 4), ("user", 5)]


@given(st.lists(st.text(max_size=5), min_size=1, max_size=6), st.lists(st.text(max_size=5), min_size=1, max_size=6))
def test_hashes_are_equal_exactly_as_far_as_the_texts_are(one: list[str], other: list[str]) -> None:
    chains = [
        [segment.hash for segment in chain([Piece("user", text) for text in texts], [1] * len(texts), "m", Render())]
        for texts in (one, other)
    ]
    for depth in range(1, min(len(one), len(other)) + 1):
        assert (chains[0][depth - 1] == chains[1][depth - 1]) == (one[:depth] == other[:depth])


async def test_a_text_is_counted_once_and_a_block_never() -> None:
    asked: list[Piece] = []

    async def ask(piece: Piece) -> int:
        asked.append(piece)
        return 7

    counts = TokenCounts(ask)
    for _ in range(3):
        shape = await rendered([SYSTEM, QUESTION], counts, "tiny", Render())
        assert shape.tokens == 14
    assert asked == [SYSTEM, QUESTION]
    assert (await rendered([Piece("block", "5 6 7")], counts, "tiny", Render())).tokens == 3
    assert len(asked) == 2


async def test_an_engine_that_cannot_count_gives_estimates_until_it_can() -> None:
    reachable = False

    async def ask(_piece: Piece) -> int:
        if not reachable:
            raise ConnectionError
        return 99

    counts = TokenCounts(ask)
    assert await counts.of(Piece("user", "x" * 40)) == 10
    assert counts.estimated == 1
    reachable = True
    assert await counts.of(Piece("user", "x" * 40)) == 99
