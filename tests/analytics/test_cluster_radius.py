"""The radius of an encoder: the calibration by hand, and the bundled encoder's on real questions of bank customers."""

import csv

import numpy as np
import pytest

from analytics.cluster_radius import (
    CALIBRATED_EPS,
    MINILM_FP32_FINGERPRINT,
    MINILM_INT8_FINGERPRINT,
    WIDEST_EPS,
    calibrate_eps,
    eps_of,
    widest_eps,
)
from analytics.clustering import SPEC_EPS, cluster, purity
from connectors.encoders import build_encoder
from connectors.encoders.export import export
from connectors.settings import EncoderSettings
from tests.analytics.test_clustering import at

WINDOW = 500


def test_the_radius_is_a_quantile_of_the_distance_to_the_last_neighbour_that_is_needed():
    rows = at(*range(0, 100, 10))  # each of the inner ones has two neighbours at ten degrees
    ten, twenty = 1 - np.cos(np.radians(10)), 1 - np.cos(np.radians(20))
    assert calibrate_eps(rows, window=10, min_samples=3, core_share=0.5) == pytest.approx(ten)
    assert calibrate_eps(rows, window=10, min_samples=3, core_share=1.0) == pytest.approx(twenty)


def test_a_sorted_sample_is_dealt_into_mixed_windows():
    rows = np.vstack([at(*np.linspace(0, 5, 20)), at(*np.linspace(90, 95, 20))])
    dealt = calibrate_eps(rows, window=10, min_samples=3, core_share=0.5)
    assert dealt == pytest.approx(calibrate_eps(rows[::4], window=10, min_samples=3, core_share=0.5), rel=0.2)


def test_a_sample_smaller_than_a_window_calibrates_nothing():
    with pytest.raises(ValueError, match="at least 500 vectors"):
        calibrate_eps(at(0, 1, 2))
    with pytest.raises(ValueError, match="above 5"):
        calibrate_eps(at(*range(10)), window=5)


def test_the_widest_radius_is_the_last_before_chains_join_everything():
    # Ten topics of ten queries each, one degree apart; topics are 8 degrees apart at their nearest.
    rows = at(*(17 * topic + number for topic in range(10) for number in range(10)))
    joined = 1 - np.cos(np.radians(8))
    found = widest_eps(rows, window=100, min_samples=3, largest_share=0.1, digits=4)
    assert found <= joined < found + 0.0001
    assert widest_eps(rows, window=100, min_samples=3, largest_share=1.0, digits=2) > joined
    with pytest.raises(ValueError, match="at least 101 vectors"):
        widest_eps(rows, window=101)


def test_a_radius_belongs_to_a_fingerprint():
    assert eps_of("0" * 32) == SPEC_EPS
    for fingerprint in (MINILM_FP32_FINGERPRINT, MINILM_INT8_FINGERPRINT):
        assert eps_of(fingerprint) == CALIBRATED_EPS[fingerprint] == 0.22
        assert eps_of(fingerprint, {}, WIDEST_EPS) == WIDEST_EPS[fingerprint] == 0.19
        assert eps_of(fingerprint, {"0" * 32: 0.5}) == CALIBRATED_EPS[fingerprint]
    assert eps_of("0" * 32, {"0" * 32: 0.5}) == 0.5


def questions(folder, part):
    """Texts and intents of one half of Banking77."""
    with (folder / "text" / f"banking77_{part}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    kinds = {kind: number for number, kind in enumerate(sorted({row["category"] for row in rows}))}
    return [row["text"] for row in rows], np.array([kinds[row["category"]] for row in rows])


def even(intents):
    """Windows in which every intent is as frequent as in the file: the hardest case, six queries of each."""
    dealt = len(intents) // WINDOW
    return [np.arange(start, len(intents), dealt)[:WINDOW] for start in range(dealt)]


def skewed(intents):
    """Windows of traffic: the n-th intent is asked for 1/n as often as the first, another order in each window."""
    windows = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        share = np.empty(intents.max() + 1)
        share[rng.permutation(len(share))] = 1 / np.arange(1, len(share) + 1)
        each = share[intents] / np.bincount(intents)[intents]
        windows.append(rng.choice(len(intents), WINDOW, replace=False, p=each / each.sum()))
    return windows


def figures(vectors, intents, windows, eps):
    """Purity, share of the largest, share of grouped queries and number of groups, as means over windows."""
    found = []
    for window in windows:
        clustering = cluster(vectors[window], eps=eps)
        pure = purity(clustering.labels, intents[window].tolist())
        grouped = sum(label >= 0 for label in clustering.labels) / len(window)
        found.append((pure, clustering.largest_share, grouped, len(clustering.groups)))
    return np.mean(found, axis=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "fingerprint"), [("fp32", MINILM_FP32_FINGERPRINT), ("int8", MINILM_INT8_FINGERPRINT)]
)
def test_on_real_questions_the_calibrated_radius_keeps_topics_apart_that_the_reference_radius_chains(
    precision, fingerprint, data_dir, encoder_model, capsys
):
    export(encoder_model, precision)
    encoder = build_encoder(EncoderSettings(model=encoder_model, precision=precision))
    assert encoder.fingerprint == fingerprint
    eps = eps_of(encoder.fingerprint)
    texts, _ = questions(data_dir, "train")
    calibrated = calibrate_eps(encoder.encode(texts[::4]))
    assert calibrated == pytest.approx(eps, abs=0.01)
    assert widest_eps(encoder.encode(texts[1::4])) == pytest.approx(WIDEST_EPS[fingerprint], abs=0.01)

    texts, intents = questions(data_dir, "test")
    vectors = encoder.encode(texts)
    with capsys.disabled():
        print(
            f"\nBanking77, {precision}, windows of {WINDOW}; radius by a quarter of the training half: {calibrated:.4f}"
        )
        for name, windows in (("even", even(intents)), ("skewed", skewed(intents))):
            spec = figures(vectors, intents, windows, SPEC_EPS)
            own = figures(vectors, intents, windows, eps)
            for radius, (pure, largest, grouped, groups) in ((SPEC_EPS, spec), (eps, own)):
                print(
                    f"  {name}, eps {radius}: purity {pure:.3f}, largest share {largest:.3f}, "
                    f"grouped {grouped:.3f}, groups {groups:.1f}"
                )
            assert own[0] > spec[0] + 0.3
            assert own[1] < 0.1 < 0.25 < spec[1]
