"""Serving answers by people's judgements: the gain is the rewards', for dealt out by chance they bring none."""

from __future__ import annotations

import pytest

from schemas import BrokenConfiguration
from stoker.backtests.score import RULES, Judgements, dealt, played, read_judgements


@pytest.fixture(scope="module")
def judgements() -> Judgements:
    try:
        return read_judgements()
    except BrokenConfiguration as absent:
        pytest.skip(str(absent))


def test_a_reward_goes_to_both_answers_of_a_pair(judgements: Judgements) -> None:
    assert len(judgements.told) == 999 * 2 * 2
    assert sum(reward for _, reward in judgements.told) == 999 * 2
    assert len({question for question, _ in judgements.worth}) == 170


@pytest.mark.parametrize("rule", RULES)
def test_rewards_that_are_dealt_out_by_chance_bring_no_gain(judgements: Judgements, rule: str) -> None:
    told = played(judgements, 0.5, RULES[rule], shuffled=False, seeds=5)
    control = played(judgements, 0.5, RULES[rule], shuffled=True, seeds=5)
    assert told.gain > 0.25
    assert abs(control.gain) < 0.05
    assert control.wrong > 4 * told.wrong


def test_the_lower_bound_serves_fewer_answers_and_fewer_wrong_ones(judgements: Judgements) -> None:
    for share in (0.25, 0.5, 1.0):
        spec, tuned = (played(judgements, share, RULES[rule], shuffled=False, seeds=5) for rule in ("spec", "tuned"))
        assert tuned.wrong < spec.wrong / 2
        assert tuned.gain > spec.gain
        assert tuned.count < spec.count


def test_dealing_keeps_answers_and_rewards() -> None:
    told = [(("q", str(number)), float(number)) for number in range(50)]
    found = dealt(told, 1)
    assert [answer for answer, _ in found] == [answer for answer, _ in told]
    assert sorted(reward for _, reward in found) == [reward for _, reward in told]
    assert found != told
    assert dealt(told, 1) == found
