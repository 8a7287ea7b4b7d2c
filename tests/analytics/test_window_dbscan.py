"""Clusters of a sliding window against scikit-learn's DBSCAN of the raw window, and state that goes on at any point."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.clustering import NOISE
from analytics.window_dbscan import WindowConfig, WindowDbscan

dbscan = pytest.importorskip("sklearn.cluster").dbscan
adjusted_rand_score = pytest.importorskip("sklearn.metrics").adjusted_rand_score


def at(*degrees):
    """Unit vectors of the plane."""
    radians = np.radians(degrees)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


def held(window, names):
    """Labels and core flags of the raw window's requests, as the incremental clustering has them."""
    groups = window.groups()
    place = {query: number for number, query in enumerate(groups.queries)}
    rows = [place[name] for name in names]
    return [groups.labels[row] for row in rows], [groups.cores[row] for row in rows]


def batch(rows, eps, min_samples):
    """The same by scikit-learn, from scratch."""
    cores, labels = dbscan(rows.astype(np.float64), eps=eps, min_samples=min_samples, metric="cosine")
    flags = np.zeros(len(rows), dtype=bool)
    flags[cores] = True
    return labels.tolist(), flags.tolist()


@settings(max_examples=25, deadline=None)
@given(
    asked=st.lists(st.integers(0, 40), min_size=1, max_size=60),
    window=st.integers(4, 30),
    stride=st.integers(1, 4),
    min_samples=st.integers(1, 6),
    step=st.sampled_from([3.0, 9.0]),
    restored=st.integers(0, 60),
)
def test_it_is_the_batch_clustering_of_the_raw_window_whatever_came_and_went(
    asked, window, stride, min_samples, step, restored
):
    # Angles that are no multiple of the radius, so that no distance lies at its bound.
    rows, eps = at(*(step * number for number in range(41))), 1 - np.cos(np.radians(step * 1.5))
    config = WindowConfig(window, eps, min_samples)
    found = WindowDbscan(config)
    for start in range(0, len(asked), stride):
        some = asked[start : start + stride]
        found.extend([str(number) for number in some], rows[some])
        if start <= restored < start + stride:
            found, blob = WindowDbscan(config), found.snapshot()
            found.restore(blob)
        raw = asked[max(0, start + len(some) - window) : start + len(some)]
        assert len(found) == len(raw)
        labels, cores = batch(rows[raw], eps, min_samples)
        assert held(found, [str(number) for number in raw]) == (labels, cores)


def test_many_dimensions_and_strides_of_many_requests():
    source = np.random.default_rng(5)
    topics = source.normal(size=(12, 64))
    of = source.integers(0, 12, size=600)
    rows = (topics[of] + source.normal(size=(600, 64)) * source.uniform(0.2, 1.2, size=(600, 1))).astype(np.float32)
    asked = np.minimum(source.zipf(1.2, size=2_000), 600) - 1
    found = WindowDbscan(WindowConfig(700, 0.3, 5))
    for start in range(0, len(asked), 100):
        some = asked[start : start + 100]
        found.extend([str(number) for number in some], rows[some])
        if start % 500 == 400:
            raw = asked[max(0, start + 100 - 700) : start + 100]
            labels, cores = batch(rows[raw], 0.3, 5)
            ours = held(found, [str(number) for number in raw])
            assert adjusted_rand_score(labels, ours[0]) == 1.0
            assert ours == (labels, cores)
            assert len(set(labels)) > 3


def test_a_pair_at_the_radius_is_linked_and_one_beyond_it_by_less_than_float32_can_tell_is_not():
    rows = at(0, 10)
    one, other = rows.astype(np.float64)
    apart = 1.0 - (one @ other) / np.sqrt((one @ one) * (other @ other))
    for eps, label in ((apart, 0), (apart - 1e-12, NOISE)):
        found = WindowDbscan(WindowConfig(10, eps, 2))
        found.extend(["a", "b"], rows)
        assert found.groups().labels == (label, label)


def test_a_query_that_is_asked_for_often_is_dense_by_itself_and_leaves_with_its_requests():
    found = WindowDbscan(WindowConfig(6, 0.1, 5))
    found.extend(["a"] * 5, np.repeat(at(0), 5, axis=0))
    assert found.groups().labels == (0,)
    assert found.groups().cores == (True,)
    found.extend(["b"] * 2, np.repeat(at(90), 2, axis=0))
    assert (found.groups().queries, found.groups().counts, found.groups().labels) == (("a", "b"), (4, 2), (NOISE,) * 2)
    found.extend(["b"] * 4, np.repeat(at(90), 4, axis=0))
    assert "a" not in found
    assert found.groups().counts == (6,)


def test_a_row_of_zeros_is_far_from_everything():
    found = WindowDbscan(WindowConfig(10, 0.5, 2))
    found.extend(["a", "b", "c"], np.array([[0, 0], [0, 0], [1, 0]], dtype=np.float32))
    assert found.groups().labels == (NOISE,) * 3


def test_what_does_not_fit_is_refused_and_changes_nothing():
    found = WindowDbscan(WindowConfig(3, 0.1, 1))
    found.extend(["a"], at(0))
    before = found.snapshot()
    for queries, rows in (
        (["b"], np.zeros((1, 3), dtype=np.float32)),
        (["b"], np.full((1, 2), np.nan, dtype=np.float32)),
        (["b"], at(0, 1)),
        (["b"] * 4, at(0, 1, 2, 3)),
    ):
        with pytest.raises(ValueError, match=r"want|places"):
            found.extend(queries, rows)
        assert found.snapshot() == before
