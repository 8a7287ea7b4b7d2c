"""Groups of like requests in a pool (D10): sliding features, clustered as they come.

Each request joins the nearest group of its model version within a radius, whose centre moves towards it, or opens a
new one (leader clustering, Hartigan 1975, with forgetting as in DenStream, Cao et al. 2006). Weights decay with event
time, so that a group is what was asked lately; two whose centres meet are one from then on. A scope has so many groups
at most: the lightest gives way. One record a group, written when it changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import structs

from analytics.records import Record, Section, pack, path, unpack
from analytics.request_features import AUTHORS, Features, distance, tokens_at

RADIUS = 0.25
"""One doubling of length or latency, or a quarter of the tokens from another author; all of them together."""
MAX_GROUPS = 16
"""Groups of a scope in a pool."""
MIN_REQUESTS = 5.0
"""A lighter group is not told of (D5's `min_samples`)."""
FAINT = 0.05
"""A group that weighs less is forgotten."""


class GroupRecord(Record, frozen=True, array_like=True):
    """A group as it is kept.

    Attributes:
        number: within its scope, rising; one that has faded may be given again.
        weight: requests, each counting e^(-age / life) at `at_ms`, its newest request.
        centre, slowness: mean of its points; slowness is over `slow_weight` requests that told a latency.
        told: whether somebody has heard of it.
    """

    scope: str
    version: str
    number: int
    weight: float
    at_ms: int
    centre: tuple[float, ...]
    slowness: float = 0.0
    slow_weight: float = 0.0
    told: bool = False


class Group(NamedTuple):
    """A group as it is told.

    Attributes:
        known: whether it was told of before.
        requests: its weight. share: of all requests of its scope.
        evidence: what its requests are like, by name.
    """

    scope: str
    version: str
    number: int
    known: bool
    requests: float
    share: float
    evidence: dict[str, float]


class RequestGroups:
    """Groups of every scope in one pool.

    Args:
        life_ms: mean time that a request counts for, in event time as it passes.
    """

    def __init__(self, life_ms: int, store: Section) -> None:
        self._life_ms = life_ms
        self._store = store
        self._held: dict[str, dict[int, GroupRecord]] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def add(self, scope: str, features: Features, at_ms: int) -> None:
        """Takes a request."""
        groups = self._held.setdefault(scope, {})
        point, slowness = features.point, features.slowness
        alike = [group for group in groups.values() if group.version == features.version]
        nearest = min(alike, key=lambda group: (_apart(group, point, slowness), group.number), default=None)
        if nearest is not None and _apart(nearest, point, slowness) <= RADIUS:
            grown = self._grown(nearest, 1.0, point, slowness, 1.0, at_ms)
            self._put(self._merged(groups, grown))
            return
        if len(groups) >= MAX_GROUPS:
            self._drop(min(groups.values(), key=lambda group: (self._weight(group, at_ms), group.number)))
        number = max(groups, default=0) + 1
        slow = (0.0, 0.0) if slowness is None else (slowness, 1.0)
        self._put(GroupRecord(1, scope, features.version, number, 1.0, at_ms, point, *slow))

    def told(self, at_ms: int) -> Iterator[Group]:
        """Groups that are heavy enough to speak of, scope by scope, heaviest first; from now on they are known."""
        for scope, groups in sorted(self._held.items()):
            weights = {number: self._weight(group, at_ms) for number, group in sorted(groups.items())}
            everything = sum(weights.values())
            for number in sorted(weights, key=lambda number: (-weights[number], number)):
                group, weight = groups[number], weights[number]
                if weight < MIN_REQUESTS:
                    break
                yield Group(scope, group.version, number, group.told, weight, weight / everything, _evidence(group))
                if not group.told:
                    self._put(structs.replace(group, told=True))

    def forget(self, at_ms: int) -> None:
        """Drops groups that have faded."""
        faded = [g for groups in self._held.values() for g in groups.values() if self._weight(g, at_ms) < FAINT]
        for group in faded:
            self._drop(group)

    def restore(self, blob: bytes) -> None:
        """Takes back one group."""
        group = unpack(blob, GroupRecord)
        self._held.setdefault(group.scope, {})[group.number] = group

    def _weight(self, group: GroupRecord, at_ms: int) -> float:
        return group.weight * math.exp(-max(0, at_ms - group.at_ms) / self._life_ms)

    def _grown(
        self,
        group: GroupRecord,
        weight: float,
        point: tuple[float, ...],
        slowness: float | None,
        slow_weight: float,
        at_ms: int,
    ) -> GroupRecord:
        """The group with more weight at a point; what is older than the group's newest counts for less."""
        newest_ms = max(group.at_ms, at_ms)
        kept = math.exp(-(newest_ms - group.at_ms) / self._life_ms)
        fresh = math.exp(-(newest_ms - at_ms) / self._life_ms)
        held, held_slow = group.weight * kept, group.slow_weight * kept
        new, new_slow = weight * fresh, 0.0 if slowness is None else slow_weight * fresh
        part = new / (held + new)
        slow_part = new_slow / (held_slow + new_slow) if new_slow else 0.0
        return structs.replace(
            group,
            weight=held + new,
            at_ms=newest_ms,
            centre=tuple(old + part * (x - old) for old, x in zip(group.centre, point, strict=True)),
            slowness=group.slowness + slow_part * ((slowness or 0.0) - group.slowness),
            slow_weight=held_slow + new_slow,
        )

    def _merged(self, groups: dict[int, GroupRecord], grown: GroupRecord) -> GroupRecord:
        """The group together with the first other one that its centre has come near; the older number stays."""
        for _, other in sorted(groups.items()):
            alike = other.number != grown.number and other.version == grown.version
            if alike and _apart(other, grown.centre, _slowness(grown)) <= RADIUS / 2:
                older, younger = sorted((other, grown), key=lambda group: group.number)
                self._drop(younger)
                slowness, weight = _slowness(younger), younger.slow_weight
                return self._grown(older, younger.weight, younger.centre, slowness, weight, younger.at_ms)
        return grown

    def _put(self, group: GroupRecord) -> None:
        self._held.setdefault(group.scope, {})[group.number] = group
        self._store.put(path(group.scope, str(group.number)), pack(group))

    def _drop(self, group: GroupRecord) -> None:
        groups = self._held[group.scope]
        if groups.pop(group.number, None) is not None:
            self._store.remove(path(group.scope, str(group.number)))
        if not groups:
            del self._held[group.scope]


def _apart(group: GroupRecord, point: tuple[float, ...], slowness: float | None) -> float:
    return distance(group.centre, _slowness(group), point, slowness)


def _slowness(group: GroupRecord) -> float | None:
    return group.slowness if group.slow_weight else None


def _evidence(group: GroupRecord) -> dict[str, float]:
    shares = {f"share_{author}": share for author, share in zip(AUTHORS, group.centre[1:], strict=True)}
    latency = {"latency_ms": tokens_at(group.slowness)} if group.slow_weight else {}
    return {"tokens": tokens_at(group.centre[0]), **shares, **latency}
