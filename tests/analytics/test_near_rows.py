"""Near pairs through sketches against all pairs measured in float64, whatever the vectors are like."""

from __future__ import annotations

import numpy as np
import pytest

from analytics.near_rows import SKETCHED_FROM, NearRows

DIMENSION = 192


def spread(count, falling, seed):
    """Vectors of any length, a few near to each: the greater `falling`, the fewer directions they vary along."""
    source = np.random.default_rng(seed)
    scales = np.arange(1, DIMENSION + 1) ** -falling
    turned, _ = np.linalg.qr(source.normal(size=(DIMENSION, DIMENSION)))
    kinds = source.normal(size=(count // 4, DIMENSION)) * scales
    rows = kinds[source.integers(0, len(kinds), count)] + 0.5 * source.normal(size=(count, DIMENSION)) * scales
    return ((rows @ turned) * source.uniform(0.1, 9, size=(count, 1))).astype(np.float32)


def pairs(found):
    """As they are compared."""
    return set(zip(*(side.tolist() for side in found), strict=True))


def truth(rows, slots, eps):
    """All pairs of some rows with all, by float64."""
    units = rows.astype(np.float64)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    source, target = np.nonzero(1 - units[slots] @ units.T <= eps)
    return pairs((slots[source], target))


def filled(rows, eps):
    """With rows that came some at a time, so that sketches are there."""
    points = NearRows(eps)
    for start in range(0, len(rows), 512):
        points.put(np.arange(start, min(start + 512, len(rows))), rows[start : start + 512])
    return points


@pytest.mark.parametrize(
    ("falling", "eps"),
    [
        pytest.param(0.5, 0.2, id="few directions: sketches rule out nearly all"),
        pytest.param(0.2, 0.2, id="more directions: much of a cosine is outside of the sketches"),
        pytest.param(0.0, 0.7, id="all directions: sketches rule out too little, whole products are taken"),
        pytest.param(0.5, 1.5, id="a radius that most are within"),
    ],
)
def test_sketches_lose_no_pair_and_add_none(falling, eps):
    rows = spread(2 * SKETCHED_FROM + 200, falling, seed=3)
    asked = np.r_[0:10, len(rows) - 20 : len(rows)]
    assert pairs(filled(rows, eps).near(asked)) == truth(rows, asked, eps)


def test_directions_that_no_longer_fit_cost_time_only_and_are_learned_anew():
    window, eps = 2 * SKETCHED_FROM, 0.2
    slots, points = np.arange(window), filled(spread(window, 0.5, seed=1), eps)
    for seed in range(2, 8):
        rows = spread(window, 0.5, seed)
        for start in range(0, window, 512):
            some = slots[start : start + 512]
            points.clear(some)
            points.put(some, rows[some])
        assert pairs(points.near(slots[:50])) == truth(rows, slots[:50], eps)


def test_an_empty_slot_is_near_to_none_and_is_filled_again():
    rows = spread(2 * SKETCHED_FROM, 0.5, seed=5)
    points, slots = filled(rows, 0.2), np.arange(20)
    points.clear(slots[10:])
    assert not {target for _, target in pairs(points.near(slots[:10]))} & set(range(10, 20))
    points.put(slots[10:], rows[:10])
    assert {(number, number + 10) for number in range(10)} <= pairs(points.near(slots[:10]))


def test_where_all_have_left_vectors_of_another_dimension_may_come():
    rows = spread(2 * SKETCHED_FROM, 0.5, seed=5)
    points = filled(rows, 0.2)
    points.clear(np.arange(len(rows)))
    points.put(np.array([3, 1]), np.array([[1, 0], [1, 0.1]], dtype=np.float32))
    assert pairs(points.near(np.array([3]))) == {(3, 3), (3, 1)}
