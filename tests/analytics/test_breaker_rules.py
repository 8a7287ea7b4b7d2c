"""The specification's breaker, by the figures of D16."""

from __future__ import annotations

import pytest

from analytics.breaker_rules import Advice, Load, band, should_break, spec
from analytics.policy_sections import BreakerPolicy

POLICY = BreakerPolicy()


@pytest.mark.parametrize(
    ("usage", "allocations", "preheating", "breaks"),
    [
        (0.86, 1_201, False, True),
        (0.85, 1_201, False, False),  # above, not at
        (0.86, 1_200, False, False),
        (0.71, 1_201, False, False),
        (0.71, 1_201, True, True),
        (0.70, 1_201, True, False),
        (1.00, 0, True, False),  # full, but nothing is being taken
    ],
)
def test_code(usage: float, allocations: float, preheating: bool, breaks: bool) -> None:
    assert should_break(usage, allocations, preheating, POLICY) is breaks


@pytest.mark.parametrize(
    ("load", "advice"),
    [
        (Load(0.86), Advice("break", 0.0, None, ("usage",))),
        (Load(0.85, waiting=3), Advice("back_off", 0.25, 200.0, ("queue",))),
        (Load(0.60, waiting=1), Advice("back_off", 0.5, 200.0, ("queue",))),
        (Load(0.60, waiting=0, p99_ms=200), Advice("none", 1.0, 200.0)),
        (Load(0.70, waiting=0, p99_ms=201), Advice("back_off", 0.5, 200.0, ("p99",))),
        (Load(0.70, waiting=9, p99_ms=500), Advice("back_off", 0.1, 200.0, ("p99", "queue"))),
        (Load(0.59, waiting=9, p99_ms=120), Advice("none", 1.0, 120.0)),
        (Load(0.10, p99_ms=121), Advice("back_off", 0.5, 120.0, ("p99",))),
    ],
)
def test_table(load: Load, advice: Advice) -> None:
    assert band(load, POLICY) == advice


def test_either_is_the_stricter_of_both() -> None:
    by_code, by_table = Load(0.72, 1, 1_500), Load(0.9, 0, 3)
    assert spec(by_code, True, POLICY) == Advice("break", 0.0, None, ("allocations", "queue"))
    assert spec(by_code, False, POLICY) == Advice("back_off", 0.5, 200.0, ("queue",))
    assert spec(by_table, False, POLICY) == Advice("break", 0.0, None, ("usage",))
    assert spec(by_table, False, BreakerPolicy(spec="code")) == Advice("none")
    assert spec(by_code, True, BreakerPolicy(spec="table")).action == "back_off"
