"""Density over weighted points that come and go: who is near whom is found once, groups are found when asked for.

DBSCAN (Ester et al. 1996) of a multiset, with one point for each distinct member and its multiplicity as weight: a
point is a core when the weights within the radius, its own included, reach `min_samples`. A new point's neighbours are
found once (`NearRows`), exactly: links do not depend on what a point was multiplied with, and a graph that is built
anew from the same points is the same graph. Approximate neighbours would lose that (algorithms.md section 2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analytics.clustering import NOISE
from analytics.near_rows import Flags, NearRows
from analytics.sketches import Floats, Ints

BLOCK = 256
"""New points that are multiplied at a time: more is no faster and takes more room."""


@dataclass(frozen=True)
class Density:
    """What a graph holds at a moment, by slot.

    Attributes:
        labels: number of a slot's group, `NOISE` where it is in none or empty. Groups are numbered by their first core
            in the order that was asked for; a point that is no core and near to several groups is in the first of them.
        cores: which slots are cores.
    """

    labels: Ints
    cores: Flags


class DensityGraph:
    """Points in numbered slots, their weights and the links of those within the radius.

    Args:
        eps: radius in cosine distance; two points at just this distance are linked.
        min_samples: weight within the radius, a point's own included, that makes it a core.
    """

    def __init__(self, eps: float, min_samples: int) -> None:
        self._min_samples = min_samples
        self._free: list[int] = []
        self._top = 0
        self._points = NearRows(eps)
        self._alive = np.zeros(0, dtype=bool)
        self._links = np.zeros((2, 0), dtype=np.int32)
        self._linked = 0
        self.weights = np.zeros(0, dtype=np.int64)
        """Weight of each slot, 0 or more; to be changed by whoever owns the graph."""

    def __len__(self) -> int:
        return self._top - len(self._free)

    @property
    def links(self) -> int:
        """Pairs of points within the radius."""
        return self._linked

    def rows(self, slots: Ints) -> Floats:
        """The vectors of some slots as they were given."""
        return self._points.rows(slots)

    def add(self, rows: Floats) -> Ints:
        """Takes points, with weight 0, and links them; returns their slots.

        Args:
            rows: float32, one a point, of any length. A row of zeros is at distance 1 from all others.

        Raises:
            ValueError: rows of another dimension than before, or a number that is not finite.
        """
        if not len(rows):
            return np.empty(0, dtype=np.int64)
        if rows.ndim != 2 or (len(self) and rows.shape[1] != self._points.dimension) or not np.isfinite(rows).all():
            raise ValueError("a density graph wants rows of finite numbers, all of one dimension")
        slots = np.array([self._free.pop() for _ in range(min(len(self._free), len(rows)))], dtype=np.int64)
        fresh = len(rows) - len(slots)
        slots = np.concatenate((slots, np.arange(self._top, self._top + fresh)))
        self._top += fresh
        self._reserve()
        self._points.put(slots, rows)
        self._alive[slots] = True
        self.weights[slots] = 0
        for start in range(0, len(slots), BLOCK):
            self._link(slots[start : start + BLOCK], slots[start:])
        return slots

    def remove(self, slots: Ints) -> None:
        """Takes points out; their slots will be given to others."""
        if not len(slots):
            return
        self._alive[slots] = False
        self._points.clear(slots)
        self.weights[slots] = 0
        self._free += slots.tolist()
        source, target = self._links[:, : self._linked]
        kept = self._alive[source] & self._alive[target]
        self._linked = int(np.count_nonzero(kept))
        # The last links go where others went: few are moved.
        left = np.flatnonzero(~kept[: self._linked])
        self._links[:, left] = self._links[:, self._linked + np.flatnonzero(kept[self._linked :])]

    def density(self, order: Ints) -> Density:
        """Cores and groups of now.

        Args:
            order: of each slot, by which groups are numbered.
        """
        source, target = self._links[:, : self._linked]
        top, weights = self._top, self.weights[: self._top]
        degree = weights + np.bincount(source, weights[target], top) + np.bincount(target, weights[source], top)
        cores = self._alive[:top] & (degree >= self._min_samples)
        labels = np.full(top, NOISE, dtype=np.int64)
        if not cores.any():
            return Density(labels, cores)
        from_core, to_core = cores[source], cores[target]
        between = from_core & to_core
        labels[cores] = _components(source[between], target[between], cores, order[:top])
        borders = np.full(top, top, dtype=np.int64)
        for core, border, mixed in (
            (source, target, from_core & ~to_core),
            (target, source, to_core & ~from_core),
        ):
            np.minimum.at(borders, border[mixed], labels[core[mixed]])
        labels = np.where(borders < top, borders, labels)
        return Density(labels, cores)

    def _link(self, new: Ints, pending: Ints) -> None:
        """Links new points with all that were there before them, and with each other.

        Args:
            pending: those that are not linked yet, the new ones among them.
        """
        source, target = self._points.near(new)
        later = np.zeros(self._top, dtype=bool)
        later[pending] = True
        # Of two new points the one in the greater slot finds the other.
        own = np.zeros(self._top, dtype=bool)
        own[new] = True
        kept = self._alive[target] & (~later[target] | (own[target] & (target < source)))
        self._append(source[kept], target[kept])

    def _append(self, source: Ints, target: Ints) -> None:
        linked = self._linked + len(source)
        if linked > self._links.shape[1]:
            grown = np.zeros((2, max(linked, 2 * self._links.shape[1])), dtype=np.int32)
            grown[:, : self._linked] = self._links[:, : self._linked]
            self._links = grown
        self._links[0, self._linked : linked] = source
        self._links[1, self._linked : linked] = target
        self._linked = linked

    def _reserve(self) -> None:
        """Room for all slots; it doubles."""
        room = len(self._alive)
        more = max(self._top, 2 * room) - room if self._top > room else 0
        self._alive = np.concatenate((self._alive, np.zeros(more, dtype=bool)))
        self.weights = np.concatenate((self.weights, np.zeros(more, dtype=np.int64)))


def _components(source: Ints, target: Ints, cores: Flags, order: Ints) -> Ints:
    """Numbers of the groups that links between cores form, for each core, in the order of each group's first."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    # Whoever is no core is a component by itself, and comes last. scipy would make floats of any other numbers.
    graph = coo_matrix((np.ones(len(source)), (source, target)), shape=(len(cores), len(cores)))
    groups, component = connected_components(graph, directed=False)
    first = np.full(groups, np.iinfo(np.int64).max)
    np.minimum.at(first, component[cores], order[cores])
    numbered: Ints = np.argsort(np.argsort(first, kind="stable"), kind="stable")[component[cores]]
    return numbered
