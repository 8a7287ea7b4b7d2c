"""Backtest `absent`: both rules beside what policy says, and what its requests are."""

from __future__ import annotations

import itertools

import pytest

from stoker.backtests.absent import CAPACITIES, RULES, figures, played
from stoker.backtests.absent_traffic import BLOCK_TOKENS, LOADS, MIXES, SECONDS, Mix, generated, traced
from stoker.backtests.kv_asked import reliability_error
from stoker.replay.mooncake import Line


def test_who_knows_capacity_and_traffic_says_how_often_a_prefix_is_absent() -> None:
    requests = generated(MIXES["chats"], LOADS["step"], 5)
    said = played(requests, SECONDS * 1000, {"large": CAPACITIES["large"]}, BLOCK_TOKENS, 5)["large"]
    errors = {rule: reliability_error(said[rule]) for rule in RULES}
    assert errors["told"] <= 0.05 < errors["hidden"] < errors["spec"]
    # Judged is what is the same for all of them, in the second half.
    assert len({tuple(absent for _, absent in said[rule]) for rule in RULES}) == 1
    assert 0.2 < sum(absent for _, absent in said["told"]) / len(said["told"]) < 0.9


def test_requests_are_the_same_for_a_seed_and_others_for_another() -> None:
    one, same, other = (
        list(itertools.islice(generated(MIXES["chats"], LOADS["swing"], seed), 50)) for seed in (1, 1, 2)
    )
    assert one == same != other
    assert all(len(asked.blocks) == 20 and list(asked.prefixes) == [12] for asked in one)
    assert len({asked.blocks[-1] for asked in one}) == 50, "their own words"


@pytest.mark.parametrize(
    ("load", "at_s", "per_s"), [("steady", 9, 4), ("swing", 150, 11.3), ("step", 0, 2), ("step", 2_000, 8)]
)
def test_loads_are_what_they_are_named_after(load: str, at_s: float, per_s: float) -> None:
    assert LOADS[load](at_s) == pytest.approx(per_s, rel=0.01)


def test_every_block_of_a_trace_ends_a_prefix() -> None:
    (asked,) = traced([Line(7, 1_024, 1, (3, 9))])
    assert (asked.at_ms, len(asked.blocks), list(asked.prefixes)) == (7.0, 2, [1, 2])


def test_what_is_longer_than_a_replica_is_served_and_not_kept() -> None:
    requests = generated(Mix(families=3, exponent=0.0, shared=0, family=4, own=200), LOADS["steady"], 1)
    said = played(itertools.islice(requests, 200), 60_000, {"tiny": 100}, BLOCK_TOKENS, 1)["tiny"]
    assert said["told"]
    assert all(absent for _, absent in said["told"])


def test_figures_stand_beside_what_policy_says() -> None:
    found = {figure.name: figure for figure in figures("steady", {"spec": 0.2, "hidden": 0.06, "told": 0.02})}
    assert [found[f"reliability.{rule}.steady"].verdict for rule in RULES] == ["-", "missed", "met"]
    assert found["reliability.told.steady"].ratio == pytest.approx(0.1)
