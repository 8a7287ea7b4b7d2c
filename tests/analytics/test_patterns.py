"""The spec rules of D10, each against numbers worked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.patterns import (
    SKETCH_WORDS,
    adapter_rate,
    consecutive_prompts,
    fnv1a32,
    jaccard,
    pattern_state,
    prefill_priority,
    sketch_of,
)


def words(*numbers: int) -> str:
    return " ".join(f"word{number}" for number in numbers)


def test_jaccard_of_short_prompts_is_exact_and_ignores_case_order_and_repetition() -> None:
    assert jaccard(sketch_of("Where IS my card"), sketch_of("my card is where where")) == 1.0
    assert jaccard(sketch_of("where is my card"), sketch_of("where is my phone")) == pytest.approx(3 / 5)
    assert jaccard(sketch_of(""), sketch_of("")) == 0.0


def test_three_prompts_in_a_row_fire_only_above_0_85() -> None:
    # 17 of 20 words shared is 0.85 exactly and does not fire; 18 of 20 is 0.9 and does.
    base = sketch_of(words(*range(18)))
    at_bar = [base, sketch_of(words(*range(17), 100, 101)), base]
    assert jaccard(at_bar[0], at_bar[1]) == 17 / 20
    assert not consecutive_prompts(at_bar)
    above = [base, sketch_of(words(*range(18), 100, 101)), base]
    assert jaccard(above[0], above[1]) == 18 / 20
    assert consecutive_prompts(above)


def test_both_neighbours_must_resemble_each_other_and_only_the_last_three_count() -> None:
    same, other = sketch_of(words(1, 2, 3)), sketch_of(words(7, 8, 9))
    assert not consecutive_prompts([same, same])
    assert not consecutive_prompts([same, other, same])
    assert not consecutive_prompts([same, same, other])
    assert consecutive_prompts([other, same, same, same])


def test_a_long_prompt_is_estimated_from_its_smallest_hashes() -> None:
    long, near = sketch_of(words(*range(2000))), sketch_of(words(*range(100, 2100)))
    assert len(long.hashes) == SKETCH_WORDS
    assert (long.distinct, long.whole) == (2000, False)
    assert jaccard(long, near) == pytest.approx(1900 / 2100, abs=0.1)
    assert jaccard(long, sketch_of(words(*range(5000, 7000)))) == pytest.approx(0.0, abs=0.03)
    assert jaccard(long, sketch_of(words(*range(60)))) == pytest.approx(0.03, abs=0.05)


@given(st.frozensets(st.integers(0, 60), max_size=40), st.frozensets(st.integers(0, 60), max_size=40))
def test_short_sketches_give_the_jaccard_index_of_the_sets(a: frozenset[int], b: frozenset[int]) -> None:
    expected = len(a & b) / len(a | b) if a | b else 0.0
    left, right = sketch_of(words(*sorted(a)), b"s"), sketch_of(words(*sorted(b)), b"s")
    assert jaccard(left, right) == pytest.approx(expected)
    assert left.hashes == tuple(sorted(left.hashes))
    assert len(left.hashes) == left.distinct == len(a)


def test_words_of_two_sessions_have_nothing_in_common() -> None:
    assert jaccard(sketch_of("where is my card", b"one"), sketch_of("where is my card", b"two")) == 0.0


@pytest.mark.parametrize(
    ("data", "value"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)], ids=["empty", "a", "foobar"]
)
def test_fnv1a_gives_the_published_values(data: bytes, value: int) -> None:
    assert fnv1a32(data) == value


def test_priority_by_the_spec_s_formula() -> None:
    # 0xBF9CF968 = 3,214,735,720; mod 100 = 20. 20 · 10 / 2.5 = 80; 20 · 0.3 / 2.5 = 2.4, cut to 2.
    assert prefill_priority("foobar", 10.0).raw == 80
    assert prefill_priority("foobar", 0.3).raw == 2
    assert prefill_priority("foobar", 0.0).command == 0
    # 20 · 500 / 2.5 = 4,000: a command carries 999 at most, the reason the whole.
    clamped = prefill_priority("foobar", 500.0)
    assert (clamped.raw, clamped.command) == (4000, 999)


def test_a_new_pattern_asks_for_its_whole_prefix_and_a_known_one_for_what_is_missing() -> None:
    new = pattern_state(False, [True, True, False])
    assert (new.state, new.segments) == (201, (0, 1, 2))
    known = pattern_state(True, [True, False, False])
    assert (known.state, known.segments) == (202, (1, 2))
    assert pattern_state(True, [True, True]).segments == ()


@pytest.mark.parametrize(("uses", "warm"), [(4, False), (5, True), (60, True)])
def test_five_uses_in_a_minute_warm_an_adapter(uses: int, warm: bool) -> None:
    assert adapter_rate(uses) is warm
