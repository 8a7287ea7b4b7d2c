"""What a renewal is worth, against a cache that is played out."""

from __future__ import annotations

import random

import pytest

from analytics.worth import kept_of_displaced, p_absent_by_age, p_kept_by_renewal


@pytest.mark.parametrize(
    ("age_s", "stay_s", "horizon_s"), [(50, 80, 120), (10, 80, 120), (200, 300, 120), (100, 300, 60)]
)
def test_a_renewal_keeps_what_is_asked_for_between_the_two_ends(age_s: int, stay_s: int, horizon_s: int) -> None:
    source, rate, drawn = random.Random(5), 0.01, 40_000
    saved = 0
    for _ in range(drawn):
        next_s = source.expovariate(rate)
        if next_s <= horizon_s:
            saved += (next_s < stay_s) - (age_s + next_s < stay_s)
    found = p_kept_by_renewal(rate, age_s * 1000, stay_s * 1000, horizon_s * 1000)
    assert found == pytest.approx(saved / drawn, abs=0.008)


def test_what_stays_beyond_the_horizon_anyway_is_not_worth_a_renewal() -> None:
    assert p_kept_by_renewal(0.01, 10_000, 300_000, 120_000) == 0.0
    assert p_kept_by_renewal(0.01, 250_000, 300_000, 120_000) > p_kept_by_renewal(0.01, 200_000, 300_000, 120_000) > 0


def test_what_is_displaced_is_paid_for() -> None:
    assert kept_of_displaced(0.01, 0.0) == 1.0
    assert kept_of_displaced(0.01, 0.004) == pytest.approx(0.6)
    assert kept_of_displaced(0.01, 0.02) == 0.0, "what goes for it is asked for more often"
    assert kept_of_displaced(0.0, 0.0) == 0.0


def test_absence_follows_from_age_and_is_even_at_the_stay() -> None:
    chances = [p_absent_by_age(age_ms, 60_000) for age_ms in (0, 30_000, 60_000, 120_000)]
    assert chances == [0.0, pytest.approx(1 / 17), 0.5, pytest.approx(16 / 17)]
