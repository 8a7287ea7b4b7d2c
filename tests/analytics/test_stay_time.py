"""How long replicas keep things, and that the chance of absence is right where routing is random."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from analytics.cache_models import LruCache, Run
from analytics.decay import EMPTY, Decay
from analytics.records import Section
from analytics.stay_time import StayTime
from analytics.stores import MemoryMapStore
from analytics.worth import p_absent_prior

FIRST_MS = 120_000
REPLICAS, FAMILIES, RATE_PER_S, SECONDS = 4, 300, 4.0, 2_400
Predicted = list[tuple[float, bool]]


def reliability_error(predicted: Sequence[tuple[float, bool]]) -> float:
    """Mean distance of predicted from found share over ten bins of prediction, by their size."""
    bins: dict[int, Predicted] = {}
    for chance, absent in predicted:
        bins.setdefault(min(9, int(chance * 10)), []).append((chance, absent))
    return sum(abs(sum(chance - absent for chance, absent in members)) for members in bins.values()) / len(predicted)


def played(capacity: int, seed: int) -> tuple[Predicted, Predicted]:
    """Predictions and what was found, by what was learned and by the first expectation alone."""
    source, decay = random.Random(seed), Decay.half_life(300_000)
    pools = [LruCache(capacity) for _ in range(REPLICAS)]
    weights = [1 / (family + 1) ** 0.9 for family in range(FAMILIES)]
    levels: dict[int, float] = {}
    stay = StayTime(FIRST_MS, Section(MemoryMapStore(), ""))
    learned: Predicted = []
    fixed: Predicted = []
    at_s = 0.0
    for number in range(int(SECONDS * RATE_PER_S)):
        at_s += source.expovariate(RATE_PER_S)
        (family,) = source.choices(range(FAMILIES), weights)
        source.choice(pools).request([Run("system", 32), Run(family, 64), Run(("question", number), 16)])
        levels[family] = decay.added(levels.get(family, EMPTY), 1.0, at_s * 1000)
        if number % 8 or at_s < 300:
            continue
        rates = {name: decay.rate_per_s(decay.amount(level, at_s * 1000)) for name, level in levels.items()}
        candidate = source.choice([name for name, rate in rates.items() if rate > 0.003])
        rate = rates[candidate]
        absent = source.choice(pools).held(candidate) < 64
        if at_s > SECONDS / 2:
            learned.append((p_absent_prior(rate, REPLICAS, stay.ms or FIRST_MS), absent))
            fixed.append((p_absent_prior(rate, REPLICAS, FIRST_MS), absent))
        stay.learn(rate / REPLICAS, absent)
    return learned, fixed


@pytest.mark.parametrize("capacity", [1_500, 4_000])
def test_with_hidden_capacity_and_random_routing_the_chance_of_absence_is_reliable(capacity: int) -> None:
    learned, fixed = played(capacity, seed=5)
    errors = reliability_error(learned), reliability_error(fixed)
    print(f"capacity {capacity}: reliability error {errors[0]:.3f} (goal <= 0.05), not learned {errors[1]:.3f}")
    assert errors[0] <= 0.05
    assert errors[0] < errors[1]


def test_the_time_is_found_and_follows_when_it_changes() -> None:
    source, stay = random.Random(3), StayTime(FIRST_MS, Section(MemoryMapStore(), ""))
    assert stay.ms is None
    for truth_ms in (20_000, 600_000):
        for _ in range(3_000):
            rate = source.choice((0.001, 0.005, 0.02, 0.1))
            stay.learn(rate, source.random() < math.exp(-rate * truth_ms / 1000))
        assert stay.ms is not None
        assert 0.7 < stay.ms / truth_ms < 1.4


def test_it_goes_on_from_its_record_and_leaves_none_when_it_forgets() -> None:
    store = MemoryMapStore()
    one = StayTime(FIRST_MS, Section(store, ""))
    for number in range(20):
        one.learn(0.01, number % 3 == 0)
    other = StayTime(FIRST_MS, Section(store, ""))
    other.restore(store.records[""])
    assert other.ms == one.ms
    assert [one.learn(0.02, True), one.ms] == [other.learn(0.02, True), other.ms]
    other.forget()
    assert (other.ms, store.records) == (None, {})


def test_findings_put_the_shadow_right_and_follow_it_when_it_moves() -> None:
    source, stay = random.Random(4), StayTime(FIRST_MS, Section(MemoryMapStore(), ""))
    assert stay.expect(40_000)
    assert stay.ms == pytest.approx(40_000, rel=0.1)
    for _ in range(1_000):  # it says half of what is true
        rate = source.choice((0.005, 0.02, 0.1))
        stay.learn(rate, source.random() < math.exp(-rate * 80))
    assert stay.ms == pytest.approx(80_000, rel=0.3)
    before_ms = stay.ms
    assert stay.expect(10_000)
    assert stay.ms == pytest.approx(before_ms / 4, rel=0.3), "what is wrong with it stays wrong"
    assert not stay.expect(10_500), "a little is not worth another look"
    assert stay.evidence(stay.ms) == {"stay_ms": stay.ms, "stay_shadow_ms": 10_000}


def test_that_a_cache_seems_to_keep_all_does_not_keep_findings_from_being_heard() -> None:
    stay = StayTime(FIRST_MS, Section(MemoryMapStore(), ""))
    assert stay.learns_after_ms is None
    stay.expect(40_000)
    assert stay.learns_after_ms == pytest.approx(60_000, rel=0.1)
    stay.expect(86_400_000)
    assert stay.learns_after_ms == 1.5 * FIRST_MS


def test_what_was_found_beside_a_shadow_says_nothing_without_it() -> None:
    store = MemoryMapStore()
    stay = StayTime(FIRST_MS, Section(store, ""))
    assert not stay.expect(None)
    stay.learn(0.05, absent=True)
    stay.expect(1_000_000)
    assert stay.ms == pytest.approx(1_000_000)
    for _ in range(50):
        stay.learn(0.05, absent=True)
    restored = StayTime(FIRST_MS, Section(store, ""))
    restored.restore(store.records[""])
    assert (restored.ms, restored.shadow_ms) == (stay.ms, 1_000_000)
    assert stay.expect(None)
    assert (stay.ms, store.records) == (None, {})


def test_ages_at_which_things_were_found_put_the_shadow_right() -> None:
    source, stay = random.Random(6), StayTime(FIRST_MS, Section(MemoryMapStore(), ""))
    stay.expect(40_000)
    for _ in range(1_000):  # everything goes at 25 s
        age_ms = source.uniform(5_000, 45_000)
        stay.learn_by_age(age_ms, absent=age_ms > 25_000)
    assert stay.ms == pytest.approx(25_000, rel=0.15)
    assert not stay.learn_by_age(0, absent=True), "what was just asked for tells nothing"


def test_what_goes_next_is_kept_with_the_stay_and_forgotten_with_its_shadow() -> None:
    store = MemoryMapStore()
    stay = StayTime(FIRST_MS, Section(store, ""))
    assert not stay.expect_margin(0.01), "there is no shadow"
    stay.expect(40_000)
    assert stay.expect_margin(0.01)
    assert not stay.expect_margin(0.0105), "a little is not worth another look"
    restored = StayTime(FIRST_MS, Section(store, ""))
    restored.restore(store.records[""])
    assert restored.margin_per_s == stay.margin_per_s == 0.01
    assert stay.expect_margin(0.012)
    assert stay.expect_margin(0.0)
    assert not stay.expect_margin(0.0000001)
    assert stay.expect_margin(None)
    stay.expect_margin(0.01)
    stay.expect(None)
    assert (stay.margin_per_s, store.records) == (None, {})


def test_by_the_specification_policy_says_it_whatever_is_heard() -> None:
    store = MemoryMapStore()
    StayTime(FIRST_MS, Section(store, "")).expect(50_000)
    stay = StayTime(FIRST_MS, Section(store, ""), "spec")
    stay.restore(store.records[""])
    assert not stay.expect(50_000)
    assert not stay.learn(0.1, absent=True)
    assert (stay.ms, stay.evidence(1.0), store.records) == (None, {"stay_ms": 1.0}, {})
