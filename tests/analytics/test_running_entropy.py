"""Running sums against a fresh count and against scipy, for any sequence of adds and removes."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.key_numbers import KeyNumbers
from analytics.running_entropy import CountSums, EntropyColumn, RunningEntropy, clogc_units, sums_of

scipy_stats = pytest.importorskip("scipy.stats")

BITS = 1e-9
"""The bound of BENCHMARKS.md."""

changes = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 5), st.booleans()), max_size=80)
batches = st.lists(st.tuples(st.lists(st.integers(0, 2_000), max_size=40), st.booleans()), max_size=20)


@settings(max_examples=40)
@given(changes)
def test_any_adds_and_removes_leave_what_a_fresh_count_gives(done: list[tuple[int, int, bool]]) -> None:
    running, held = RunningEntropy(), Counter[int]()
    for key, times, adds in done:
        if adds:
            running.add(key, times)
            held[key] += times
        elif held[key] >= times:
            running.remove(key, times)
            held[key] -= times
        else:
            with pytest.raises(ValueError, match="cannot be removed"):
                running.remove(key, times)
        assert running.sums == sums_of(held.values())
    counts = [count for count in held.values() if count]
    if counts:
        assert running.sums.entropy_bits == pytest.approx(scipy_stats.entropy(counts, base=2), abs=BITS)


@settings(max_examples=40)
@given(batches)
def test_batches_give_exactly_what_single_changes_give(done: list[tuple[list[int], bool]]) -> None:
    column, single = EntropyColumn(), RunningEntropy()
    held = Counter[int]()
    for keys, adds in done:
        asked = Counter(keys)
        if adds:
            column.add(np.array(keys, dtype=np.int64))
            held += asked
            for key in keys:
                single.add(key)
        elif all(held[key] >= times for key, times in asked.items()):
            column.remove(np.array(keys, dtype=np.int64))
            held -= asked
            for key in keys:
                single.remove(key)
        else:
            before = column.sums
            with pytest.raises(ValueError, match="removed more often"):
                column.remove(np.array(keys, dtype=np.int64))
            assert column.sums == before
        assert column.sums == single.sums


@settings(max_examples=30)
@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=30))
def test_counts_of_any_size_keep_the_bound(counts: list[int]) -> None:
    running = RunningEntropy()
    for key, count in enumerate(counts):
        running.add(key, count)
    assert running.sums.entropy_bits == pytest.approx(scipy_stats.entropy(counts, base=2), abs=BITS)
    assert clogc_units(10**9) == pytest.approx(10**9 * math.log(10**9) * 2**32, rel=1e-15)


def test_counts_beyond_the_table_are_the_same_in_a_batch() -> None:
    column, single = EntropyColumn(), RunningEntropy()
    keys = np.repeat(np.array([3, 4], dtype=np.int64), [140_000, 1 << 17])
    column.add(keys)
    column.remove(keys[:7])
    single.add(3, 140_000)
    single.add(4, 1 << 17)
    single.remove(3, 7)
    assert column.sums == single.sums


def test_the_correction_of_miller_and_madow_takes_most_of_the_bias_away() -> None:
    shares = np.arange(1, 201) ** -1.0
    shares /= shares.sum()
    truth = float(-(shares * np.log2(shares)).sum())
    source = np.random.default_rng(5)
    sums = [sums_of(source.multinomial(1_000, shares).tolist()) for _ in range(40)]
    plain = np.mean([each.entropy_bits for each in sums]) - truth
    corrected = np.mean([each.corrected_bits for each in sums]) - truth
    assert plain < -0.08
    assert abs(corrected) < 0.03


@settings(max_examples=40)
@given(st.lists(st.integers(0, 9), max_size=30), st.lists(st.integers(0, 9), max_size=30))
def test_an_exchange_is_an_add_and_a_remove(entering: list[int], leaving: list[int]) -> None:
    one, two = EntropyColumn(), EntropyColumn()
    come, go = np.array(entering, dtype=np.int64), np.array(leaving, dtype=np.int64)
    for column in (one, two):
        column.add(go)
    one.exchange(come, go)
    two.add(come)
    two.remove(go)
    assert one.sums == two.sums == sums_of(Counter(entering).values())


def test_nothing_has_no_entropy() -> None:
    assert (CountSums().entropy_bits, CountSums().corrected_bits) == (0, 0)
    assert sums_of([7]).corrected_bits == pytest.approx(0, abs=BITS)


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=60))
def test_a_number_belongs_to_one_key_at_a_time_and_is_given_again(done: list[tuple[int, bool]]) -> None:
    numbers, held, most = KeyNumbers[int](), dict[int, int](), 0
    for key, comes in done:
        if comes:
            number = int(numbers.of([key])[0])
            assert held.setdefault(key, number) == number
        elif key in held:
            gone = held.pop(key)
            numbers.release([gone])
            with pytest.raises(KeyError):
                numbers.key(gone)
        most = max(most, len(held))
        assert len(numbers) == len(held) == len(set(held.values()))
        assert {number: numbers.key(number) for number in held.values()} == {n: k for k, n in held.items()}
    assert numbers.capacity == most
