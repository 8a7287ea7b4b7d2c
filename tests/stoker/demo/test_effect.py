"""Which requests are compared, and how sure the comparison is."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import Arm
from stoker.demo.effect import Groups, Issued, Restart, Sample, Touch, shadowed, whole
from stoker.demo.effect import grouped as grouped_of


def touch(at_ms: int, unit: str, replica: str = "r0", ttft_ms: float | None = 10.0, scope: str = "shop") -> Touch:
    return Touch(at_ms, scope, replica, ("trunk", unit, f"{unit}/q{at_ms}"), (10, 80, 10), ttft_ms, 20, 100)


def issued(at_ms: int, unit: str, arm: Arm = "warm", scope: str = "shop") -> Issued:
    return Issued(at_ms, scope, unit, arm)


def grouped(touches: list[Touch], commands: list[Issued], capacity_tokens: int) -> Groups:
    return grouped_of(shadowed(touches, capacity_tokens), commands)


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


def test_a_restart_empties_the_shadow_of_its_replica_only() -> None:
    touches = [touch(100, "a", "r0"), touch(101, "a", "r1"), touch(300, "a", "r0"), touch(301, "a", "r1")]
    seen = shadowed(touches, 10_000, [Restart(200, "r0")])
    assert [one.found for one in seen] == [0, 0, 0, 2]


def test_all_requests_before_a_time_of_the_workload() -> None:
    touches = [replace(touch(100 + due, "a"), due_ms=due) for due in (0, 50, 90)]
    assert whole(shadowed(touches, 1_000), 90).count == 2
    assert whole(shadowed(touches, 1_000)).units == ("a",) * 3
