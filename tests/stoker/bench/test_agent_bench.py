"""The bench of the light agent, in a short form; and that its play counts what it says."""

from __future__ import annotations

import pytest

from stoker.bench.agent import run
from stoker.bench.agent_load import ANSWER_MS, COLD_START_STEPS, HOLD_STEPS, SHAPES, Load, load, played


@pytest.mark.slow
def test_it_measures_every_figure_beside_the_fixed_threshold() -> None:
    figures = {figure.name: figure for figure in run(events=3_000).figures}
    assert {"decision_us", "bytes_per_series"} < set(figures)
    assert figures["decision_us"].baseline is not None
    assert 1_000 < figures["bytes_per_series"].value < 64_000
    for shape in SHAPES:
        for rule in ("fixed", "matched", "spec", "tuned"):
            assert figures[f"false_triggers.{rule}.{shape}"].value <= figures[f"triggers.{rule}.{shape}"].value
        assert figures[f"warm_share.matched.{shape}"].value <= figures[f"warm_share.spec.{shape}"].value
        assert figures[f"false_triggers.tuned.{shape}"].value < figures[f"false_triggers.fixed.{shape}"].value


@pytest.mark.parametrize("shape", SHAPES)
def test_load_crosses_the_threshold_and_is_the_seed_s(shape: str) -> None:
    one = load(shape, 1, 9_000)
    assert one == load(shape, 1, 9_000)
    assert one != load(shape, 2, 9_000)
    assert min(one.rates) < 40 < max(one.rates)


def test_a_trigger_is_false_where_no_such_load_comes_while_it_holds() -> None:
    steps = 4 * HOLD_STEPS
    rates = [10.0] * steps
    rates[3 * HOLD_STEPS : 3 * HOLD_STEPS + 5] = [60.0] * 5
    wanted = [False] * steps
    wanted[0] = wanted[3 * HOLD_STEPS - 1] = True
    found = played(Load(tuple(rates), (0,) * (steps - 1) + (1,)), wanted)
    assert (found.triggers, found.false) == (2, 1)
    assert (found.over, found.over_cold) == (5, COLD_START_STEPS)
    assert found.warm == 2 * HOLD_STEPS
    assert found.first_token_ms == (ANSWER_MS,)


def test_a_second_copy_halves_the_line() -> None:
    crowd = Load((100.0,) * 60, (20,) * 60)
    alone, helped = (played(crowd, [wanted] * 60).first_token_ms for wanted in (False, True))
    assert max(helped) < max(alone) / 4
