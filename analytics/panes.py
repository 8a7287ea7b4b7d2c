"""One pane of one shard: exact counts per place (scope, pool), dimension and key, distinct users per query, identities.

Weights are whole millionths and sums are `math.fsum`, so nothing depends on the order in which events came: a pane
restored from its blob and its log publishes the same bytes as the one that was lost. Beyond `PaneCaps.keys` an event
counts as a key of its own, which can only raise the entropy: a flood of new keys never looks like a crowd.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec
from msgspec import Struct

from analytics.entropy import clogc
from analytics.envelopes import KeyCount
from analytics.facts import MICRO

CountedDimension = Literal["query", "template", "adapter"]
DIMENSIONS: tuple[CountedDimension, ...] = ("query", "template", "adapter")
Place = tuple[str, str]
"""Scope and pool."""

OTHER_POOL = "other"
"""Where a pane counts the pools of a scope for which it has no place any more."""

Key = bytes
"""16 bytes of a query, or the UTF-8 name of a template or adapter."""


@dataclass(frozen=True)
class PaneCaps:
    """What bounds a pane's memory.

    Attributes:
        keys: keys of all places and dimensions together.
        users_per_key: distinct users remembered of one query; further ones are not counted.
        places: places with counts of their own; further ones of a scope are counted together as `OTHER_POOL`, so that
            a scope's totals stay exact whatever pools its producers name.
    """

    keys: int = 50_000
    users_per_key: int = 4_096
    places: int = 2_048


@dataclass(frozen=True)
class Summary:
    """Totals of one dimension; see `envelopes.Partial`. `users` counts distinct (key, user) pairs."""

    events: int
    weight: float
    sum_clogc: float
    distinct: int
    users: int
    top: tuple[KeyCount, ...]


class Row(Struct, array_like=True, gc=False):
    """Count of one key. `users` is nobody (0), one 64-bit hash, or a set of them: most keys have one user."""

    events: int
    weight: int
    users: int | set[int]

    @property
    def distinct_users(self) -> int:
        """How many distinct users asked."""
        return (1 if self.users else 0) if isinstance(self.users, int) else len(self.users)


class Counts(Struct, array_like=True):
    """Counts of one dimension at one place."""

    events: int = 0
    weight: int = 0
    beyond: int = 0
    beyond_weight: int = 0
    users_capped: int = 0
    changed: bool = False
    rows: dict[Key, Row] = msgspec.field(default_factory=dict)

    @property
    def capped(self) -> bool:
        """Whether a cap made these counts inexact."""
        return bool(self.beyond or self.users_capped)

    def add(self, key: Key, weight: int, user: int, room: bool, max_users: int) -> int:
        """Counts one event; returns how often its key has been counted here, 0 when there was no room for it."""
        self.events += 1
        self.weight += weight
        self.changed = True
        row = self.rows.get(key)
        if row is None:
            if not room:
                self.beyond += 1
                self.beyond_weight += weight
                return 0
            self.rows[key] = Row(1, weight, user)
            return 1
        row.events += 1
        row.weight += weight
        users = row.users
        if user and users != user:
            if type(users) is int:
                row.users = {users, user} if users else user
            elif user not in users:  # type: ignore[operator]
                if len(users) < max_users:  # type: ignore[arg-type]
                    users.add(user)  # type: ignore[union-attr]
                else:
                    self.users_capped += 1
        return row.events

    def absorb(self, other: Counts) -> None:
        """Adds counts of another place, for totals over a scope's pools or a minute's panes."""
        self.events += other.events
        self.weight += other.weight
        self.beyond += other.beyond
        self.beyond_weight += other.beyond_weight
        self.users_capped += other.users_capped
        for key, row in other.rows.items():
            mine = self.rows.get(key)
            if mine is None:
                users = row.users if isinstance(row.users, int) else set(row.users)
                self.rows[key] = Row(row.events, row.weight, users)
                continue
            mine.events += row.events
            mine.weight += row.weight
            both = _as_set(mine.users) | _as_set(row.users)
            mine.users = both if len(both) > 1 else next(iter(both), 0)

    def summary(self, dimension: CountedDimension, top: int) -> Summary:
        """Totals, and the `top` heaviest keys; equal weights in the order of their keys."""
        rows = self.rows
        weights, users = [], 0
        for row in rows.values():
            weights.append(row.weight)
            if row.users:
                users += 1 if type(row.users) is int else len(row.users)  # type: ignore[arg-type]
        # `clogc` of one is nothing: most keys are asked for once.
        terms = [times * clogc(weight / MICRO) for weight, times in Counter(weights).items() if weight != MICRO]
        if self.beyond:
            terms.append(self.beyond * clogc(self.beyond_weight / self.beyond / MICRO))
        return Summary(
            events=self.events,
            weight=self.weight / MICRO,
            sum_clogc=math.fsum(terms),
            distinct=len(weights) + self.beyond,
            users=users,
            top=self._heaviest(weights, dimension, top),
        )

    def _heaviest(self, weights: list[int], dimension: CountedDimension, top: int) -> tuple[KeyCount, ...]:
        if not weights or top < 1:
            return ()
        # Comparing plain weights first leaves few keys to order exactly.
        bar = heapq.nlargest(top, weights)[-1] if len(weights) > top else 0
        heavy = sorted([(-row.weight, key) for key, row in self.rows.items() if row.weight >= bar])[:top]
        return tuple(
            [
                KeyCount(key_text(dimension, key), max(1, round(-weight / MICRO)), self.rows[key].distinct_users)
                for weight, key in heavy
            ]
        )


class _Blob(Struct, array_like=True):
    """A pane at rest."""

    ids: tuple[bytes, bytes, bytes]
    places: list[tuple[str, str, Counts, Counts, Counts]]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Blob)


class Pane:
    """Counts and identities of one span of event time.

    Attributes:
        index: event time div the pane's length.
        places: per place the counts of each of `DIMENSIONS`.
        ids: request identities by the phases seen (1 started, 2 finished, 3 both), for their removal.
        keys: rows of all places and dimensions, against the cap.
    """

    __slots__ = ("ids", "index", "keys", "places")

    def __init__(self, index: int) -> None:
        self.index = index
        self.places: dict[Place, tuple[Counts, Counts, Counts]] = {}
        self.ids = (array("Q"), array("Q"), array("Q"))
        self.keys = 0

    def count(
        self, place: Place, query: bytes, template: bytes, adapter: bytes, weight: int, user: int, caps: PaneCaps
    ) -> int:
        """Counts one request; returns how often its query has been counted at this place, 0 without room."""
        counts = self.places.get(place)
        if counts is None:
            counts = self._new_place(place, caps)
        seen = counts[0].add(query, weight, user, self.keys < caps.keys, caps.users_per_key)
        if seen == 1:
            self.keys += 1
        if template and counts[1].add(template, weight, 0, self.keys < caps.keys, 0) == 1:
            self.keys += 1
        if adapter and counts[2].add(adapter, weight, 0, self.keys < caps.keys, 0) == 1:
            self.keys += 1
        return seen

    def _new_place(self, place: Place, caps: PaneCaps) -> tuple[Counts, Counts, Counts]:
        if len(self.places) >= caps.places:
            place = (place[0], OTHER_POOL)
        counts = self.places.get(place)
        if counts is None:
            counts = self.places[place] = (Counts(), Counts(), Counts())
        return counts

    @property
    def changed(self) -> bool:
        """Whether anything was counted since the counts were last published."""
        return any(counts.changed for place in self.places.values() for counts in place)

    def mark(self, changed: bool) -> None:
        """Sets every count that there is to changed or published."""
        for place in self.places.values():
            for counts in place:
                counts.changed = changed and counts.events > 0

    def identities(self) -> Iterable[tuple[int, int]]:
        """Every identity with the phases that this pane knows of it."""
        for phases, held in enumerate(self.ids, 1):
            for identity in held:
                yield identity, phases

    def dump(self) -> bytes:
        """The pane's blob."""
        return _encoder.encode(
            _Blob(
                tuple(held.tobytes() for held in self.ids),  # type: ignore[arg-type]
                [(*place, *counts) for place, counts in self.places.items()],
            )
        )

    @classmethod
    def load(cls, index: int, blob: bytes) -> Pane:
        """The pane of a blob, taken as published."""
        pane = cls(index)
        held = _decoder.decode(blob)
        for ids, raw in zip(pane.ids, held.ids, strict=True):
            ids.frombytes(raw)
        for scope, pool, *counts in held.places:
            pane.places[scope, pool] = tuple(counts)  # type: ignore[assignment]
            for each in counts:
                each.changed = False
                pane.keys += len(each.rows)
        return pane


def key_text(dimension: CountedDimension, key: Key) -> str:
    """A key as it is published: a query's hash in hex, a name as it is."""
    return key.hex() if dimension == "query" else key.decode()


def _as_set(users: int | set[int]) -> set[int]:
    if isinstance(users, int):
        return {users} if users else set()
    return users
