"""Which requests are compared, and how sure the comparison is."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import Arm
from stoker.demo.effect import Groups, Issued, Sample, Touch, grouped, ratio_interval


def touch(at_ms: int, unit: str, replica: str = "r0", ttft_ms: float | None = 10.0, scope: str = "shop") -> Touch:
    return Touch(at_ms, scope, replica, ("trunk", unit, f"{unit}/q{at_ms}"), (10, 80, 10), ttft_ms, 20, 100)


def issued(at_ms: int, unit: str, arm: Arm = "warm", scope: str = "shop") -> Issued:
    return Issued(at_ms, scope, unit, arm)


def counts(groups: Groups) -> tuple[int, int, int]:
    return groups.warmed.count, groups.held_out.count, groups.rest.count


def test_a_touch_counts_if_lru_had_lost_the_family_and_a_command_came_before() -> None:
    touches = [touch(100, "a"), touch(200, "b"), touch(300, "a"), touch(400, "a")]
    # The pool holds one family: at 300 plain LRU has lost "a" to "b", at 400 it has it.
    groups = grouped(touches, [issued(150, "a")], capacity_tokens=120)
    assert counts(groups) == (1, 0, 3)
    assert groups.warmed.units == ("a",)


def test_a_command_after_the_touch_does_not_count() -> None:
    assert counts(grouped([touch(100, "a")], [issued(100, "a")], 1_000)) == (0, 0, 1)
    assert counts(grouped([touch(101, "a")], [issued(100, "a")], 1_000)) == (1, 0, 0)


def test_each_replica_has_its_own_first_touch() -> None:
    touches = [touch(100 + k, "a", replica=f"r{k % 2}") for k in range(4)]
    assert counts(grouped(touches, [issued(50, "a", "hold")], 10_000)) == (0, 2, 2)


def test_another_scopes_command_does_not_count() -> None:
    assert counts(grouped([touch(100, "a")], [issued(50, "a", scope="docs")], 1_000)) == (0, 0, 1)


def test_the_deepest_unit_gives_the_arm() -> None:
    groups = grouped([touch(100, "a")], [issued(10, "trunk", "warm"), issued(20, "a", "hold")], 1_000)
    assert counts(groups) == (0, 1, 0)


def test_a_request_without_a_first_token_has_tokens_but_no_time() -> None:
    groups = grouped([touch(100, "a", ttft_ms=None)], [issued(50, "a")], 1_000)
    assert groups.warmed.count == 0
    assert groups.warmed.hit_rate == 0.2


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_swapping_the_arms_of_all_commands_swaps_the_groups(seed: int) -> None:
    source = random.Random(seed)
    touches = [touch(source.randrange(1_000), source.choice("abcdef"), source.choice(("r0", "r1"))) for _ in range(60)]
    commands = [issued(source.randrange(500), unit, source.choice(("warm", "hold"))) for unit in "abcd"]
    swapped = [replace(command, arm="hold" if command.arm == "warm" else "warm") for command in commands]
    one, other = grouped(touches, commands, 400), grouped(touches, swapped, 400)
    assert (one.warmed, one.held_out, one.rest) == (other.held_out, other.warmed, other.rest)
    assert sum(counts(one)) == one.everything.count == len(touches)


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=50), st.floats(0, 1))
def test_quantiles_are_numpys(values: list[float], share: float) -> None:
    found = Sample(tuple("u" * len(values)), tuple(values)).quantile_ms(share)
    assert found == pytest.approx(float(np.percentile(values, 100 * share)), rel=1e-9, abs=1e-9)


def test_a_group_without_touches_has_no_figures() -> None:
    nothing = Sample()
    assert (nothing.mean_ms, nothing.quantile_ms(0.5), nothing.hit_rate, nothing.lru_hit_rate) == (None,) * 4


def drawn(source: random.Random, mean_ms: float, units: int, each: int) -> Sample:
    levels = [source.gauss(mean_ms, 5) for _ in range(units)]
    pairs = [(f"u{unit}", max(1.0, source.gauss(level, 10))) for unit, level in enumerate(levels) for _ in range(each)]
    return Sample(tuple(unit for unit, _ in pairs), tuple(ttft for _, ttft in pairs))


def test_the_interval_covers_the_true_ratio() -> None:
    source = random.Random(5)
    covered = 0
    for run in range(60):
        groups = Groups(drawn(source, 50, 20, 8), drawn(source, 100, 20, 8), Sample())
        interval = ratio_interval(groups, run)
        assert interval is not None
        covered += interval[0] <= 0.5 <= interval[1]
    assert covered >= 51, "a 95 % interval of 60 runs covers 51 or more but once in 1,000 times"


def test_the_same_seed_gives_the_same_interval() -> None:
    groups = Groups(drawn(random.Random(1), 50, 9, 4), drawn(random.Random(2), 60, 9, 4), Sample())
    assert ratio_interval(groups, 3) == ratio_interval(groups, 3)
    assert ratio_interval(groups, 3) != ratio_interval(groups, 4)


@pytest.mark.parametrize(("units", "each"), [(4, 10), (9, 2)])
def test_too_few_units_or_touches_give_no_interval(units: int, each: int) -> None:
    source = random.Random(0)
    assert ratio_interval(Groups(drawn(source, 50, 20, 8), drawn(source, 50, units, each), Sample()), 0) is None
