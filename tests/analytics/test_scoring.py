import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.decay import EMPTY, Decay, join
from analytics.policy import ScorePolicy
from analytics.scoring import alpha_of, compute_dynamic_score, percentile_99

DECAY = Decay.mean_life(300_000)
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


@pytest.mark.parametrize(
    ("reward", "demand", "p99", "alpha", "score"),
    [
        (0.8, 3.0, 4.0, 0.7, 0.785),  # 0.56 + 0.3 * 0.75
        (0.8, 3.0, 4.0, 0.85, 0.7925),  # e-commerce: 0.68 + 0.15 * 0.75
        (0.8, 3.0, 4.0, 0.6, 0.78),  # news: 0.48 + 0.4 * 0.75
        (0.2, 12.0, 4.0, 0.7, 0.44),  # demand is cut at 1: 0.14 + 0.3
        (0.0, 0.0, 4.0, 0.7, 0.0),
        (1.0, 4.0, 4.0, 0.7, 1.0),
        (0.9, 0.0, 0.0, 0.7, 0.63),  # a scope without demand
        (None, 1.0, 4.0, 0.7, 0.25),  # nobody judged: demand alone
    ],
)
def test_scores_worked_by_hand(reward, demand, p99, alpha, score):
    assert compute_dynamic_score(reward, demand, p99, alpha) == pytest.approx(score, abs=1e-12)


def test_the_weight_of_a_reward_depends_on_the_domain_however_it_is_spelled():
    for domain, alpha in (("e-commerce", 0.85), ("eCommerce", 0.85), ("E_Commerce", 0.85), ("News", 0.6)):
        assert alpha_of(domain) == alpha
    for domain in ("", "newsletter", "commerce", "law"):
        assert alpha_of(domain) == 0.7
    assert alpha_of("news", ScorePolicy(alpha_news=0.1)) == 0.1


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=150))
def test_percentile_is_the_inverted_cdf(values):
    assert percentile_99(values) == np.percentile(values, 99, method="inverted_cdf")
