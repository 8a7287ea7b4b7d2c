"""Groups by density: against scikit-learn itself, by hand, and their identity over time."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.cluster_identity import continued, new_id
from analytics.clustering import NOISE, cluster, distances, purity


def at(*degrees, dimension=2):
    """Vectors at these angles in a plane."""
    rows = np.zeros((len(degrees), dimension))
    rows[:, 0] = [math.cos(math.radians(angle)) for angle in degrees]
    rows[:, 1] = [math.sin(math.radians(angle)) for angle in degrees]
    return rows


def topics(rng, count, kinds, spread, dimension=24):
    """Vectors around a few directions, and as many anywhere."""
    centres = rng.standard_normal((kinds, dimension))
    rows = centres[rng.integers(kinds, size=count)] + spread * rng.standard_normal((count, dimension))
    return np.vstack([rows, rng.standard_normal((count // 4 + 1, dimension))])


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 120),
    kinds=st.integers(1, 6),
    spread=st.floats(0.05, 1.5),
    eps=st.floats(0.02, 0.9),
    min_samples=st.integers(2, 8),
)
def test_the_groups_are_those_of_sklearn_s_own_dbscan(seed, count, kinds, spread, eps, min_samples):
    from sklearn.cluster import DBSCAN

    rows = topics(np.random.default_rng(seed), count, kinds, spread)
    wanted = DBSCAN(eps=eps, min_samples=min_samples, metric="cosine", algorithm="brute").fit_predict(rows)
    found = cluster(rows, eps=eps, min_samples=min_samples, neighbours=len(rows))
    assert found.labels == tuple(wanted)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), spread=st.floats(0.02, 0.4))
def test_a_hundred_candidates_are_enough_where_no_query_has_more_neighbours(seed, spread):
    from sklearn.cluster import DBSCAN

    rows = topics(np.random.default_rng(seed), 240, 6, spread)
    within = (distances(rows) <= 0.3).sum(axis=1).max()
    wanted = DBSCAN(eps=0.3, min_samples=5, metric="cosine", algorithm="brute").fit_predict(rows)
    found = cluster(rows, eps=0.3, neighbours=int(within))
    assert found.labels == tuple(wanted)


def test_the_reference_rule_by_hand():
    # cos 47° = 0.68: at 46° two queries are neighbours at 0.32, at 48° they are not.
    chain = cluster(at(0, 10, 20, 30, 40, 86, 134))
    assert chain.labels == (0, 0, 0, 0, 0, 0, NOISE)  # 86° is at 46° from a core; 134° is at 48° from a border
    assert cluster(at(0, 10, 20, 30, 88)).labels == (NOISE,) * 5  # four near ones are no core
    assert cluster(at(0, 10, 20, 30, 40)).labels == (0,) * 5  # the query itself is the fifth
    assert cluster(at(0, 1, 2, 3, 4, 180, 181, 182, 183, 184)).labels == (0,) * 5 + (1,) * 5


def test_density_counts_queries_and_mass_counts_requests():
    assert cluster(at(0, 90), [1000, 1]).groups == ()
    (group,) = cluster(at(0, 10, 20, 30, 40), [1, 2, 3, 2, 1]).groups
    assert (group.mass, group.medoid, group.members) == (9.0, 2, (2, 1, 3, 0, 4))


def test_the_medoid_goes_to_where_the_requests_are():
    rows = at(0, 10, 20, 30, 40)
    assert cluster(rows, [50, 1, 1, 1, 1]).groups[0].medoid == 0
    assert cluster(rows, [1, 1, 1, 1, 50]).groups[0].medoid == 4
    assert cluster(rows, [0, 0, 0, 0, 0]).groups[0].medoid == 2


def test_of_equal_medoids_the_first_row_is_taken_whatever_the_last_bit_says():
    rng = np.random.default_rng(5)
    turn, _ = np.linalg.qr(rng.standard_normal((64, 64)))
    assert cluster(at(0, 10, 20, 30, dimension=64) @ turn, min_samples=4).groups[0].medoid == 1


def test_only_links_between_near_neighbours_count_where_it_is_too_dense_to_look_at_all():
    dense = at(*[0.01 * n for n in range(30)], 20)
    assert cluster(dense).labels == (0,) * 31
    # With six candidates each, the far one still sees six of the dense ones: a link in one direction is a link.
    assert cluster(dense, neighbours=6).labels == (0,) * 31
    two = at(*[0.001 * n for n in range(8)], *[20 + 0.001 * n for n in range(8)])
    assert cluster(two).groups[0].members == tuple(range(16))
    assert cluster(two, neighbours=6).labels == (0,) * 8 + (1,) * 8


def test_share_of_the_largest_group_is_of_all_queries():
    found = cluster(at(0, 1, 2, 3, 4, 90, 180, 181, 182, 183, 184, 185))
    assert found.largest_share == 6 / 12
    assert cluster(np.empty((0, 4))).largest_share == 0


def test_what_cannot_be_clustered_is_refused_or_empty():
    assert cluster([]).labels == ()
    assert cluster([[0.0, 0.0]] * 6).groups == ()  # no direction, no neighbour
    for rows, weights in (([[1.0, math.nan]], None), ([[1.0, 0.0]], [1, 2]), ([[1.0, 0.0]], [math.inf]), ([1.0], None)):
        with pytest.raises(ValueError, match="one row of finite numbers"):
            cluster(rows, weights)


def test_purity_is_of_the_grouped_ones():
    assert purity([0, 0, 0, 1, 1, -1], [1, 1, 2, 3, 3, 9]) == 4 / 5
    assert purity([-1, -1], [1, 2]) == 1


def test_a_group_keeps_its_id_through_growth_split_and_merge():
    before = {"a": ["1", "2", "3", "4", "5", "6"], "b": ["7", "8", "9"]}
    assert continued(before, [["1", "2", "3", "4", "5", "6", "x", "y"], ["7", "8"]]) == ["a", "b"]
    assert continued(before, [["1", "2"], ["3", "4", "5", "6"]]) == [None, "a"]
    assert continued(before, [[*before["a"], *before["b"]]]) == ["a"]
    assert continued(before, [["x"], ["y", "9"]]) == [None, "b"]
    assert continued({}, [["1"]]) == [None]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_an_id_goes_to_at_most_one_group_that_shares_a_member(data):
    names = st.sampled_from("abcdefghijkl")

    def groups():
        drawn = data.draw(st.lists(st.sets(names, min_size=1), max_size=4))
        taken, found = set(), []
        for group in drawn:
            if group - taken:
                found.append(sorted(group - taken))
                taken |= group
        return found

    before = {f"id{n}": members for n, members in enumerate(groups())}
    now = groups()
    ids = continued(before, now)
    kept = [name for name in ids if name is not None]
    assert len(kept) == len(set(kept))
    assert all(set(before[name]) & set(members) for name, members in zip(ids, now, strict=True) if name is not None)
    unclaimed = set().union(*(set(before[name]) for name in before if name not in kept))
    assert all(not unclaimed & set(members) for name, members in zip(ids, now, strict=True) if name is None)


def test_ids_differ_by_scope_time_and_medoid():
    assert len({new_id("s", 1, "m"), new_id("t", 1, "m"), new_id("s", 2, "m"), new_id("s", 1, "n")}) == 4
