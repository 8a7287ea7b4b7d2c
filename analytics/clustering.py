"""Groups of like queries by density: the reference rule of D5, one pure function over the vectors of a window.

DBSCAN (Ester et al. 1996) by scikit-learn on cosine distances, looking at each query's nearest neighbours only. A row
is a distinct query: density counts queries, not requests, so that one query asked for a thousand times is no group. How
often each was asked for makes the group's mass and moves its medoid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # numpy is imported by those who cluster
    from numpy.typing import NDArray

SPEC_EPS = 0.32
MIN_SAMPLES = 5
NEIGHBOURS = 100
NOISE = -1
FAR = 3.0
"""A cosine distance that no radius reaches."""


@dataclass(frozen=True)
class Group:
    """One group.

    Attributes:
        members: rows, the heaviest first, the first row of equals first.
        medoid: the row nearest to all members, by distances weighted with how often each was asked for.
        mass: weight of all members.
    """

    members: tuple[int, ...]
    medoid: int
    mass: float


@dataclass(frozen=True)
class Clustering:
    """What was found among some vectors.

    Attributes:
        labels: number of each row's group, or `NOISE`, which is no candidate.
        groups: by number.
    """

    labels: tuple[int, ...]
    groups: tuple[Group, ...]

    @property
    def largest_share(self) -> float:
        """Part of all rows that the largest group holds. Near 1 it says that chains have joined everything."""
        largest = max((len(group.members) for group in self.groups), default=0)
        return largest / len(self.labels) if self.labels else 0.0


def prepare() -> None:
    """Loads what clustering needs: three seconds of computing, once a process, better at a start than amid records."""
    import scipy.sparse.csgraph  # noqa: F401
    import sklearn.cluster  # noqa: F401


def cluster(
    vectors: Sequence[Sequence[float]] | NDArray[Any],
    weights: Sequence[float] | None = None,
    *,
    eps: float = SPEC_EPS,
    min_samples: int = MIN_SAMPLES,
    neighbours: int = NEIGHBOURS,
) -> Clustering:
    """The groups among the vectors of distinct queries (D5 spec).

    The outcome is that of `sklearn.cluster.DBSCAN(eps, min_samples, metric="cosine")` wherever no query has more than
    `neighbours` others within `eps`; in a denser place only links between near neighbours count, in either direction.

    Args:
        vectors: one row a query, of any length above zero.
        weights: how often each was asked for, 0 or more; 1 each where none are given.
        eps: radius in cosine distance; two queries at just this distance are neighbours. It belongs to an encoder.
        min_samples: queries within the radius, itself included, that make one a core.
        neighbours: nearest queries that are looked at, itself included.

    Raises:
        ValueError: rows of different length, a number that is not finite, or weights that do not fit.

    >>> near, far = [[1.0, 0.1 * n] for n in range(5)], [[-1.0, 1.0]]
    >>> cluster(near + far, [1, 1, 1, 1, 4, 9]).labels
    (0, 0, 0, 0, 0, -1)
    >>> cluster(near + far, [1, 1, 1, 1, 4, 9]).groups
    (Group(members=(4, 0, 1, 2, 3), medoid=3, mass=8.0),)
    """
    import numpy as np

    rows = np.asarray(vectors, dtype=np.float64)
    count = len(rows)
    weight = np.ones(count) if weights is None else np.asarray(weights, dtype=np.float64)
    if count == 0:
        return Clustering((), ())
    if rows.ndim != 2 or weight.shape != (count,) or not (np.isfinite(rows).all() and np.isfinite(weight).all()):
        raise ValueError("clusters want one row of finite numbers a query, and one weight for each row")
    apart = distances(rows)
    labels = _labels(apart, eps, min_samples, neighbours) if count >= min_samples else np.full(count, NOISE)
    groups = tuple(_group(np.flatnonzero(labels == number), apart, weight) for number in range(labels.max() + 1))
    return Clustering(tuple(labels.tolist()), groups)


def distances(rows: NDArray[Any]) -> NDArray[Any]:
    """Cosine distances of all pairs, 0 to 2, the same in both directions. A row of zeros is at 1 from all others."""
    import numpy as np

    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units = rows / np.where(lengths > 0, lengths, 1.0)
    cosines = units @ units.T
    apart: NDArray[Any] = np.clip(1.0 - (cosines + cosines.T) / 2, 0.0, 2.0)
    np.fill_diagonal(apart, 0.0)
    return apart


def purity(labels: Sequence[int], truth: Sequence[int]) -> float:
    """Share of the grouped rows whose group's most frequent class is their own; 1 where nothing is grouped.

    >>> purity([0, 0, 0, 1, -1], [7, 7, 8, 9, 9])
    0.75
    """
    counts: dict[int, dict[int, int]] = {}
    for label, kind in zip(labels, truth, strict=True):
        if label != NOISE:
            kinds = counts.setdefault(label, {})
            kinds[kind] = kinds.get(kind, 0) + 1
    grouped = sum(sum(kinds.values()) for kinds in counts.values())
    return sum(max(kinds.values()) for kinds in counts.values()) / grouped if grouped else 1.0


def _labels(apart: NDArray[Any], eps: float, min_samples: int, neighbours: int) -> NDArray[Any]:
    import numpy as np
    from sklearn.cluster import dbscan

    looked_at = apart
    if neighbours < len(apart):
        furthest = np.partition(apart, neighbours - 1, axis=1)[:, neighbours - 1 : neighbours]
        near = apart <= furthest
        looked_at = np.where(near | near.T, apart, FAR)
    labels: NDArray[Any] = dbscan(looked_at, eps=eps, min_samples=min_samples, metric="precomputed")[1]
    return labels


def _group(members: NDArray[Any], apart: NDArray[Any], weight: NDArray[Any]) -> Group:
    import numpy as np

    inside = weight[members]
    mass = float(inside.sum())
    cost = apart[np.ix_(members, members)] @ (inside if mass > 0 else np.ones(len(members)))
    # Sums of the same distances in another order must not decide between equals.
    medoid = int(members[np.argmin(np.round(cost, 9))])
    heaviest = members[np.argsort(-inside, kind="stable")]
    return Group(tuple(heaviest.tolist()), medoid, mass)
