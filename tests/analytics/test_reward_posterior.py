"""The posterior of a reward: bounds against scipy's Beta distribution, sources, and priors that judgements outweigh."""

from __future__ import annotations

import random
import statistics
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.reward_posterior import PRIOR, SOURCE_WEIGHTS, Evidence, Posterior, posterior, prior_of
from schemas.reward_event import RewardSource

weights = st.floats(0, 1e4)


def test_every_source_has_a_weight():
    assert set(SOURCE_WEIGHTS) == set(get_args(RewardSource))


@given(weights, st.floats(0, 1))
def test_bounds_lie_about_the_mean_within_the_range_of_rewards(weight, mean):
    found = posterior(Evidence(weight * mean, weight))
    assert 0 <= found.lower() <= found.mean <= found.upper() <= 1


@pytest.mark.parametrize("won", range(0, 13, 3))
def test_bounds_are_near_those_of_the_beta_distribution(won):
    quantile = pytest.importorskip("scipy.special").betaincinv
    found = posterior(Evidence(won, 12))
    exact = [quantile(1 + won, 1 + 12 - won, part) for part in (0.1, 0.9)]
    assert found.mean == pytest.approx((1 + won) / 14)
    assert [found.lower(), found.upper()] == pytest.approx(exact, abs=0.025)


def test_one_good_judgement_is_worth_a_trial_and_no_proof():
    once, often = posterior(Evidence(1, 1)), posterior(Evidence(10, 10))
    assert once.lower() < 0.5 < once.mean < often.lower()
    assert posterior(Evidence()).upper() > 0.5


def test_a_prior_is_what_the_others_earned_and_a_few_judgements_outweigh_it():
    good = prior_of([Evidence(9, 10), Evidence(5, 5)])
    assert (good.mean, good.weight) == (pytest.approx(15 / 17), PRIOR.weight)
    assert prior_of([]) == PRIOR
    assert prior_of([], Posterior(0.2, 7)).mean == pytest.approx(0.2)
    assert posterior(Evidence(0, 10), good).mean < 0.2


def clusters(source, shuffled):
    """Queries of ten clusters, each of its own quality; what five judgements say of each, and what is true."""
    truth, evidence = {}, {}
    for cluster in range(10):
        quality = source.uniform(0.1, 0.9)
        for query in range(12):
            true = min(1.0, max(0.0, source.gauss(quality, 0.1)))
            truth[cluster, query] = true
            won = sum(source.random() < true for _ in range(3))
            evidence[cluster, query] = Evidence(won, 3)
    if shuffled:
        dealt = list(evidence.values())
        source.shuffle(dealt)
        evidence = dict(zip(evidence, dealt, strict=True))
    return truth, evidence


def error(shuffled, with_prior):
    """Mean absolute error of the posterior mean over 20 worlds."""
    found = []
    for seed in range(20):
        truth, evidence = clusters(random.Random(seed), shuffled)
        for (cluster, query), each in evidence.items():
            others = (evidence[cluster, other] for other in range(12) if other != query)
            prior = prior_of(others) if with_prior else PRIOR
            found.append(abs(posterior(each, prior).mean - truth[cluster, query]))
    return statistics.mean(found)


def test_a_cluster_s_prior_helps_as_long_as_the_rewards_are_the_cluster_s():
    assert error(shuffled=False, with_prior=True) < 0.9 * error(shuffled=False, with_prior=False)
    assert error(shuffled=True, with_prior=True) > 0.97 * error(shuffled=True, with_prior=False)
