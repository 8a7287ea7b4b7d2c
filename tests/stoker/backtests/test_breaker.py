"""Backtest `breaker`: users keep their hits under the tuned breaker, and lose them under the specification's."""

from __future__ import annotations

import pytest

from stoker.backtests.breaker import CASES, LET_THROUGH, LOST_POINTS, WARMUPS, played

SEED = 7


def test_a_thousand_warmups_leave_users_their_hits() -> None:
    rates = {rule: played(CASES["small"], rule, SEED).hit_rate for rule in ("none", "off", "spec", "tuned")}
    assert rates["none"] - rates["tuned"] <= LOST_POINTS / 100
    assert rates["spec"] == rates["off"] < rates["none"] - 0.3, "usage alone reads 0.0"


def test_where_there_is_room_nothing_is_held_back() -> None:
    tuned, none = (played(CASES["roomy"], rule, SEED) for rule in ("tuned", "none"))
    assert tuned.warmed >= LET_THROUGH * WARMUPS
    assert tuned.hit_rate == pytest.approx(none.hit_rate, abs=0.001)


def test_users_and_warmups_are_the_same_for_every_rule() -> None:
    one, other = played(CASES["full"], "off", SEED), played(CASES["full"], "tuned", SEED)
    assert one.queried == other.queried
    assert one.warmed + one.lost == other.warmed + other.lost == WARMUPS
