"""Density over weighted points that come and go: who is near whom is found once, groups are found when asked for.

DBSCAN (Ester et al. 1996) of a multiset, with one point for each distinct member and its multiplicity as weight: a
point is a core when the weights within the radius, its own included, reach `min_samples`. What is kept is exact: a new
point's neighbours come from one matrix product in float32, and pairs so near to the bound that rounding could decide
are measured again in float64. So links do not depend on what a point was multiplied with, and a graph that is built
anew from the same points is the same graph. Approximate neighbours would lose that (algorithms.md section 2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analytics.clustering import NOISE

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

BLOCK = 256
"""New points that are multiplied at a time: more is no faster and takes more room."""

ROUNDING = 2.0**-24


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
        self._eps = eps
        self._min_samples = min_samples
        self._free: list[int] = []
        self._top = 0
        self._rows = np.zeros((0, 0), dtype=np.float32)
        self._units = np.zeros((0, 0), dtype=np.float32)
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
        rows: Floats = self._rows[slots]
        return rows

    def add(self, rows: Floats) -> Ints:
        """Takes points, with weight 0, and links them; returns their slots.

        Args:
            rows: float32, one a point, of any length. A row of zeros is at distance 1 from all others.

        Raises:
            ValueError: rows of another dimension than before, or a number that is not finite.
        """
        if not len(rows):
            return np.empty(0, dtype=np.int64)
        if rows.ndim != 2 or (len(self) and rows.shape[1] != self._rows.shape[1]) or not np.isfinite(rows).all():
            raise ValueError("a density graph wants rows of finite numbers, all of one dimension")
        slots = np.array([self._free.pop() for _ in range(min(len(self._free), len(rows)))], dtype=np.int64)
        fresh = len(rows) - len(slots)
        slots = np.concatenate((slots, np.arange(self._top, self._top + fresh)))
        self._top += fresh
        self._reserve(rows.shape[1])
        lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
        self._rows[slots] = rows
        self._units[slots] = rows / np.where(lengths > 0, lengths, 1.0)
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
        self._units[slots] = 0
        self.weights[slots] = 0
        self._free += slots.tolist()
        held = self._links[:, : self._linked]
        kept = held[:, self._alive[held[0]] & self._alive[held[1]]]
        self._linked = kept.shape[1]
        self._links[:, : self._linked] = kept

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
        labels[cores] = self._components(cores, order[:top])
        from_core, to_core = cores[source], cores[target]
        borders = np.full(top, top, dtype=np.int64)
        for core, border, mixed in (
            (source, target, from_core & ~to_core),
            (target, source, to_core & ~from_core),
        ):
            np.minimum.at(borders, border[mixed], labels[core[mixed]])
        labels = np.where(borders < top, borders, labels)
        return Density(labels, cores)

    def _components(self, cores: Flags, order: Ints) -> Ints:
        """Numbers of the groups that the cores form, in the order of each one's first."""
        from scipy.sparse import coo_matrix
        from scipy.sparse.csgraph import connected_components

        source, target = self._links[:, : self._linked]
        between = cores[source] & cores[target]
        count = int(cores.sum())
        number = np.cumsum(cores, dtype=np.int32) - 1
        ends = number[source[between]], number[target[between]]
        graph = coo_matrix((np.ones(len(ends[0]), dtype=np.int8), ends), shape=(count, count))
        groups, component = connected_components(graph, directed=False)
        first = np.full(groups, np.iinfo(np.int64).max)
        np.minimum.at(first, component, order[cores])
        numbered: Ints = np.argsort(np.argsort(first, kind="stable"), kind="stable")[component]
        return numbered

    def _link(self, new: Ints, pending: Ints) -> None:
        """Links new points with all that were there before them, and with each other.

        Args:
            pending: those that are not linked yet, the new ones among them.
        """
        top, bar = self._top, 1.0 - self._eps
        # Rounding of the units and of a sum of products whose absolute values sum to 1 at most (Higham 2002, 3.1).
        margin = (self._units.shape[1] + 8) * ROUNDING
        cosines = self._units[new] @ self._units[:top].T
        found = np.flatnonzero(cosines >= np.float32(bar - margin))
        source, target = new[found // top], found % top
        later = np.zeros(top, dtype=bool)
        later[pending] = True
        # Of two new points the one in the greater slot finds the other.
        own = np.zeros(top, dtype=bool)
        own[new] = True
        kept = self._alive[target] & (~later[target] | (own[target] & (target < source)))
        doubtful = kept & (cosines.ravel()[found] < bar + margin)
        if doubtful.any():
            kept[doubtful] = self._near(source[doubtful], target[doubtful])
        self._append(source[kept], target[kept])

    def _near(self, source: Ints, target: Ints) -> Flags:
        """Which pairs are within the radius, the same whichever of two is named first."""
        one, other = self._rows[source].astype(np.float64), self._rows[target].astype(np.float64)
        lengths = np.sqrt((one * one).sum(axis=1) * (other * other).sum(axis=1))
        cosines = (one * other).sum(axis=1) / np.where(lengths > 0, lengths, 1.0)
        near: Flags = 1.0 - cosines <= self._eps
        return near

    def _append(self, source: Ints, target: Ints) -> None:
        linked = self._linked + len(source)
        if linked > self._links.shape[1]:
            grown = np.zeros((2, max(linked, 2 * self._links.shape[1])), dtype=np.int32)
            grown[:, : self._linked] = self._links[:, : self._linked]
            self._links = grown
        self._links[0, self._linked : linked] = source
        self._links[1, self._linked : linked] = target
        self._linked = linked

    def _reserve(self, dimension: int) -> None:
        """Room for all slots; a graph that is empty may begin with another dimension."""
        room, changed = len(self._alive), self._rows.shape[1] != dimension
        if not changed and self._top <= room:
            return
        more = max(self._top, 2 * room) - room if self._top > room else 0
        rows = np.zeros((room, dimension), dtype=np.float32)
        added = np.zeros((more, dimension), dtype=np.float32)
        self._rows = np.concatenate((rows if changed else self._rows, added))
        self._units = np.concatenate((rows if changed else self._units, added))
        self._alive = np.concatenate((self._alive, np.zeros(more, dtype=bool)))
        self.weights = np.concatenate((self.weights, np.zeros(more, dtype=np.int64)))
