"""Clocks, crowds of clocks and people: told apart by their gaps, in any order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.regularity import Regularity, regularity

BAR = 0.3
rows = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 10**6)), max_size=60)


def of(users: list[int], at_ms: list[int]) -> Regularity:
    return regularity(np.array(users, dtype=np.int64), np.array(at_ms, dtype=np.int64), BAR)


def test_one_clock_shows_whoever_it_says_it_is() -> None:
    found = of(list(range(60)), [100 * tick + tick % 3 for tick in range(60)])
    assert found.variation < BAR
    assert (found.own_variation, found.repeating_share, found.regular_share) == (1, 0, 0)


def test_many_clocks_of_one_interval_show_with_their_first_repetition() -> None:
    source = np.random.default_rng(1)
    phases = source.integers(0, 20_000, 200)
    found = of([*range(200)] * 2, [*phases.tolist(), *(phases + 20_000 + source.integers(-900, 900, 200)).tolist()])
    assert found.variation > BAR
    assert found.own_variation < BAR
    assert (found.repeating_share, found.regular_share) == (1, 0)


def test_clocks_of_different_intervals_show_one_by_one() -> None:
    pairs = [(user, tick * (1_000 + 700 * user)) for user in range(20) for tick in range(6)]
    found = of([user for user, _ in pairs], [at for _, at in pairs])
    assert found.own_variation > BAR
    assert found.regular_share == 1


def test_people_look_like_none_of_it() -> None:
    source = np.random.default_rng(2)
    found = of(source.integers(0, 50, 400).tolist(), source.integers(0, 300_000, 400).tolist())
    assert min(found.variation, found.own_variation) > 0.6
    assert found.regular_share < 0.2


def test_too_few_say_nothing() -> None:
    assert of([], []) == Regularity()
    assert of([1, 2, 3], [0, 100, 200]) == Regularity()
    assert of([1] * 30, [5] * 30) == Regularity(repeating_share=1)


@given(rows, st.randoms(use_true_random=False))
def test_order_does_not_show(held: list[tuple[int, int]], chance: object) -> None:
    shuffled = chance.sample(held, len(held))  # type: ignore[attr-defined]
    one, other = (of([user for user, _ in each], [at for _, at in each]) for each in (held, shuffled))
    assert one == other
    assert 0 <= one.regular_share <= one.repeating_share <= 1
    assert one.variation == pytest.approx(one.variation)
