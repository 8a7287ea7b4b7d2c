"""What the prefix tree foretells of the trace's beginning, and that only its second half is judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from analytics.prefixes import PrefixConfig
from stoker.backtests.data import CONVERSATION
from stoker.backtests.kv_asked import asked_figures, foretold, reliability_error
from stoker.replay.mooncake import Line, read_trace

MINUTE_MS = 60_000


@pytest.mark.slow
def test_what_was_learned_is_nearer_to_what_came_than_hotness_alone(data_dir: Path) -> None:
    figures = {figure.name: figure for figure in asked_figures(read_trace(data_dir / CONVERSATION)[:3_000])}
    for name in ("reliability", "reliability_once"):
        assert figures[f"{name}.stoker"].baseline == figures[f"{name}.spec"].value
        assert 0 < figures[f"{name}.stoker"].value < figures[f"{name}.spec"].value / 2


def trace(minutes: int) -> list[Line]:
    """Every half minute a prompt that comes again after a minute, and never after that."""
    prompts = [(30_000 * number, block) for number in range(2 * minutes) for block in (number, number - 2)]
    return [Line(at_ms, 1_024, 1, (1_000, block)) for at_ms, block in prompts if block >= 0]


def test_each_prefix_that_is_held_is_judged_once_a_minute_from_the_middle_on() -> None:
    told = list(foretold(trace(20)))
    assert {each.uses for each in told} >= {1, 2}
    fresh = [each for each in told if each.uses == 1]
    assert all(each.asked for each in fresh)
    assert all(each.expected > 0.5 > each.promised for each in fresh)
    over = [each for each in told if each.uses == 2]
    assert not any(each.asked for each in over)
    # Nineteen and a half minutes: judged from the tenth on, until a horizon before the end.
    assert sum(each.uses > 2 for each in told) == 8
    by_hotness = list(foretold(trace(20), PrefixConfig(asked_rule="spec")))
    assert [each.promised for each in by_hotness] == [each.expected for each in by_hotness]
    assert [each.promised for each in by_hotness] == [each.promised for each in told]


def test_reliability_is_the_distance_by_bins_of_what_was_foretold() -> None:
    assert reliability_error([(0.25, True), (0.25, False), (0.25, False), (0.25, False)]) == 0
    assert reliability_error([(0.95, False), (0.05, True)]) == pytest.approx(0.95)
    assert reliability_error([]) == 0
