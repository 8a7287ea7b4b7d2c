"""How sure a ratio is, and what the analysis finds where nothing is to be found."""

from __future__ import annotations

import random

import pytest

from schemas import Arm
from stoker.demo.effect import Issued, Sample, Shadowed, Touch, grouped
from stoker.demo.statistics import Statistic, control, ratio


def drawn(source: random.Random, mean_ms: float, units: int, each: int) -> Sample:
    levels = [source.gauss(mean_ms, 5) for _ in range(units)]
    pairs = [(f"u{unit}", max(1.0, source.gauss(level, 10))) for unit, level in enumerate(levels) for _ in range(each)]
    return Sample(tuple(unit for unit, _ in pairs), tuple(ttft for _, ttft in pairs))


def test_the_interval_covers_the_true_ratio() -> None:
    source = random.Random(5)
    covered = 0
    for run in range(60):
        found = ratio(drawn(source, 50, 20, 8), drawn(source, 100, 20, 8), "mean", run)
        assert found is not None
        covered += found.low <= 0.5 <= found.high
    assert covered >= 51, "a 95 % interval of 60 runs covers 51 or more but once in 1,000 times"


@pytest.mark.parametrize("statistic", ["mean", "p95"])
def test_the_same_seed_gives_the_same_interval_around_the_measured_ratio(statistic: Statistic) -> None:
    one, other = drawn(random.Random(1), 50, 9, 4), drawn(random.Random(2), 100, 9, 4)
    found = ratio(one, other, statistic, 3)
    assert found == ratio(one, other, statistic, 3) != ratio(one, other, statistic, 4)
    assert found is not None
    assert found.low <= found.value <= found.high
    assert found.verdict == "less"
    back = ratio(other, one, statistic, 3)
    assert back is not None
    assert back.verdict == "more"


def test_the_tail_s_interval_is_that_of_brute_force() -> None:
    source = random.Random(8)
    one, other = drawn(source, 50, 12, 6), drawn(source, 80, 12, 6)
    found = ratio(one, other, "p95", 1)
    assert found is not None

    def resampled(sample: Sample) -> float:
        units = sorted(set(sample.units))
        times = sorted(
            ttft
            for unit in source.choices(units, k=len(units))
            for of, ttft in zip(sample.units, sample.ttft_ms, strict=True)
            if of == unit
        )
        return times[int(0.95 * (len(times) - 1))]

    brute = sorted(resampled(one) / resampled(other) for _ in range(600))
    assert found.low == pytest.approx(brute[15], abs=0.06)
    assert found.high == pytest.approx(brute[-16], abs=0.06)


@pytest.mark.parametrize(("units", "each"), [(4, 10), (9, 2)])
def test_too_few_units_or_touches_give_no_interval(units: int, each: int) -> None:
    source = random.Random(0)
    assert ratio(drawn(source, 50, 20, 8), drawn(source, 50, units, each), "mean", 0) is None


def run_of(effect: float, seed: int) -> tuple[list[Shadowed], list[Issued]]:
    """Forty units of which half are warmed, each asked for eight times; warming multiplies the wait."""
    source = random.Random(seed)
    arms: dict[str, Arm] = {f"u{unit}": "warm" if unit % 2 else "hold" for unit in range(40)}
    commands = [Issued(source.randrange(100), "s", unit, arm) for unit, arm in arms.items()]
    touches = []
    for at_ms in range(1_000, 1_320):
        unit = f"u{at_ms % 40}"
        wait_ms = source.gauss(100, 15) * (effect if arms[unit] == "warm" else 1.0)
        touch = Touch(at_ms, "s", "r", ("trunk", unit), (10, 90), max(1.0, wait_ms), 0, 100)
        touches.append(Shadowed(touch, 0))
    return touches, commands


def test_the_control_finds_nothing_and_a_real_effect_lies_outside_of_it() -> None:
    touches, commands = run_of(0.6, seed=1)
    groups = grouped(touches, commands)
    found = ratio(groups.warmed, groups.held_out, "mean", 1)
    chance = control(touches, commands, 1)
    assert found is not None
    assert chance is not None
    assert found.high < chance.low < 1 < chance.high
    assert chance.as_small == 0.0
    assert chance.median == pytest.approx(1.0, abs=0.05)


def test_without_an_effect_the_measured_ratio_is_like_the_control_s() -> None:
    touches, commands = run_of(1.0, seed=2)
    chance = control(touches, commands, 1)
    assert chance is not None
    assert 0.005 < chance.as_small < 0.995


def test_a_run_with_nothing_to_say_has_no_control() -> None:
    assert control([], [], 1) is None
