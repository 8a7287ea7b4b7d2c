import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.decay import EMPTY, Decay, join
from analytics.records import Section
from analytics.scoring import DemandQueue, compute_dynamic_score, percentile_99
from analytics.stores import MemoryMapStore

LIFE_MS = 300_000
DECAY = Decay.mean_life(LIFE_MS)
T0 = 1_790_000_000_000


@given(st.lists(st.tuples(st.floats(0.01, 100), st.integers(0, 600_000)), min_size=1, max_size=30))
def test_decayed_sums_do_not_depend_on_order_and_agree_with_the_formula(events):
    at = T0 + 600_000
    truth = math.fsum(w * math.exp(-(600_000 - t) / 300_000) for w, t in events)
    for order in (events, events[::-1]):
        level = EMPTY
        for weight, offset in order:
            level = DECAY.added(level, weight, T0 + offset)
        assert DECAY.amount(level, at) == pytest.approx(truth, rel=1e-6)


def test_joining_nothing_changes_nothing():
    assert join(EMPTY, EMPTY) == EMPTY
    assert join(2.0, EMPTY) == join(EMPTY, 2.0) == 2.0
    assert DECAY.level_of(0.0, T0) == EMPTY
    assert DECAY.amount(EMPTY, T0) == 0


def test_score_weighs_reward_and_capped_demand():
    assert compute_dynamic_score(1.0, 5.0, 10.0) == pytest.approx(0.85)
    assert compute_dynamic_score(0.0, 50.0, 10.0) == pytest.approx(0.3)
    assert compute_dynamic_score(0.5, 0.0, 0.0, alpha=0.6) == pytest.approx(0.3)
    assert compute_dynamic_score(None, 5.0, 10.0) == 0.5


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=150))
def test_percentile_is_the_inverted_cdf(values):
    assert percentile_99(values) == np.percentile(values, 99, method="inverted_cdf")


def queue(store):
    found = DemandQueue(Section(store, "q"), Section(store, "u"))
    for key, blob in store.items():
        (found.restore if key[0] == "q" else found.restore_queue)(blob)
    return found


def test_a_queue_keeps_its_best_and_drops_low_scores():
    store = MemoryMapStore()
    held = queue(store)
    for i in range(1, 101):
        held.add("s", f"q{i:03d}", float(i), T0, LIFE_MS)
    held.sort(T0, 30_000, "s", 1000, 0.25)
    # The 99th of 100 is the yardstick: 0.25 of 99 is 24.75.
    assert held.queries("s") == [f"q{i:03d}" for i in range(25, 101)]
    assert held.score("s", "q100") == 1.0
    assert held.score("s", "q050") == pytest.approx(50 / 99)
    held.sort(T0 + 1, 30_000, "s", 10, 0.25)
    assert len(held.queries("s")) == 76
    held.sort(T0 + 30_000, 30_000, "s", 10, 0.25)
    assert held.queries("s") == [f"q{i:03d}" for i in range(91, 101)]
    again = queue(store)
    assert again.queries("s") == held.queries("s")
    assert again.score("s", "q095") == held.score("s", "q095")


def test_a_queue_that_nobody_feeds_disappears():
    store = MemoryMapStore()
    held = queue(store)
    held.add("s", "q", 1.0, T0, LIFE_MS)
    held.sort(T0, 30_000, "s", 1000, 0.25)
    assert held
    held.sort(T0 + 2_000_000, 30_000, "s", 1000, 0.25)
    assert not held
    assert not store.records


def test_demand_fades_at_another_speed_from_the_change_on():
    store = MemoryMapStore()
    held = queue(store)
    held.add("s", "a", 8.0, T0, LIFE_MS)
    held.add("s", "b", 2.0, T0, LIFE_MS)
    held.sort(T0, 30_000, "s", 1000, 0.1)
    held.add("s", "b", 1.0, T0 + 60_000, 60_000)
    a_then = 8 * math.exp(-60_000 / LIFE_MS)
    b_then = 2 * math.exp(-60_000 / LIFE_MS) + 1
    for seen in (held, queue(store)):
        assert seen.demand("s", "a", T0 + 60_000) == pytest.approx(a_then)
        assert seen.demand("s", "b", T0 + 60_000) == pytest.approx(b_then)
        assert seen.demand("s", "a", T0 + 120_000) == pytest.approx(a_then * math.exp(-1))
        assert seen.score("s", "b") == pytest.approx(b_then / a_then)
        assert seen.rate_per_s("s", 6.0) == pytest.approx(6.0 / 60)
