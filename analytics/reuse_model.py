"""When a block will be asked for again, by how often it was and how long ago: learned online, from events and exposure.

For each class of uses and each bucket of age the model counts uses (events) and the time that blocks spent there
(exposure); their ratio is the rate of reuse. Decayed hotness is the prior: as long as a cell has seen little, its rate
is what a hotness of so many uses fading with the half-life says. From the rates follows an *index*: the most uses a
second that keeping a block can earn from its age on, over all times at which one may let it go (Gittins' index of a
job that ends with its reuse). A rate may be low now and high in a minute; the index looks ahead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analytics.records import Record, pack, unpack
from schemas.errors import BrokenConfiguration

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FIRST_USES = np.array([1, 2, 3, 4, 6, 9, 17])
"""Least number of uses of each class."""
MIDDLE_USES = np.array([1.0, 2.0, 3.0, 4.5, 7.0, 12.0, 24.0])
CLASS_OF: Ints = np.searchsorted(FIRST_USES, np.arange(FIRST_USES[-1] + 1), side="right") - 1
SHORTEST_MS = 4000.0
EDGES_MS: Floats = np.concatenate([[0.0], SHORTEST_MS * 2.0 ** (np.arange(0, 21) / 2)])
"""Of the buckets of age, to a little over an hour; what is older is in the last one."""


class ReuseRecord(Record, frozen=True, array_like=True):
    """What was counted and the index that was last learned of it, row by row."""

    events: tuple[float, ...]
    exposure_ms: tuple[float, ...]
    index: tuple[float, ...]


@dataclass(frozen=True)
class ReuseConfig:
    """Settings.

    Args:
        half_life_ms: of the hotness that is the prior.
        prior_uses: events that the prior counts for in each cell; sixteen tell a rate to 25 %.
    """

    half_life_ms: float = 300_000.0
    prior_uses: float = 16.0


class ReuseModel:
    """Events and exposure, and the index that follows.

    Args:
        config: settings.
    """

    def __init__(self, config: ReuseConfig) -> None:
        shape = (len(FIRST_USES), len(EDGES_MS) - 1)
        self._prior_uses = config.prior_uses
        middle_ms = (EDGES_MS[:-1] + EDGES_MS[1:]) / 2
        fading = np.exp2(-middle_ms / config.half_life_ms)
        self._prior_per_ms: Floats = np.outer(MIDDLE_USES, fading) * math.log(2) / config.half_life_ms
        self._events: Floats = np.zeros(shape)
        self._exposure_ms: Floats = np.zeros(shape)
        self._index: Floats = np.zeros(shape)
        self.learn()

    def used(self, uses: int, age_ms: float, blocks: int) -> None:
        """A run was asked for again, so long after its last of so many uses."""
        if age_ms > 0:
            # An age on an edge belongs to the time before it.
            bucket = int(np.searchsorted(EDGES_MS, age_ms, side="left")) - 1
            self._events[CLASS_OF[min(uses, len(CLASS_OF) - 1)], min(bucket, self._events.shape[1] - 1)] += blocks

    def waited(self, uses: Ints, ages_ms: Floats, blocks: Ints, time_ms: float) -> None:
        """Runs waited for their next use for a while, in the middle of which they had these ages."""
        cells = _classes(uses) * self._events.shape[1] + _buckets(ages_ms)
        counted = np.bincount(cells, weights=blocks, minlength=self._events.size)
        self._exposure_ms += counted.reshape(self._events.shape) * time_ms

    def learn(self) -> None:
        """Renews the index from what was counted."""
        rates = (self._events + self._prior_uses) / (self._exposure_ms + self._prior_uses / self._prior_per_ms)
        # What was used more often is never worth less: a prefix is used whenever what continues it is.
        self._index = np.maximum.accumulate(_gittins(rates), axis=0)
        self._fresh: list[float] = self._index[CLASS_OF, 0].tolist()

    def index(self, uses: Ints, ages_ms: Floats) -> Floats:
        """Uses a millisecond that each run can earn if it is kept from now on."""
        found: Floats = self._index[_classes(uses), _buckets(ages_ms)]
        return found

    def fresh(self, uses: int) -> float:
        """The index of a run that was used this very moment, after so many uses."""
        return self._fresh[min(uses, len(CLASS_OF) - 1)]

    def snapshot(self) -> bytes:
        """Versioned bytes of what was counted and learned."""
        events, exposure_ms, index = (
            tuple(table.ravel().tolist()) for table in (self._events, self._exposure_ms, self._index)
        )
        return pack(ReuseRecord(1, events, exposure_ms, index))

    def restore(self, blob: bytes) -> None:
        """Takes what `snapshot` gave.

        Raises:
            BrokenConfiguration: the cells of age and uses were others.
        """
        record = unpack(blob, ReuseRecord)
        if len(record.events) != self._events.size:
            raise BrokenConfiguration("a snapshot of reuse has other classes of uses and age; begin without it")
        self._events = np.array(record.events).reshape(self._events.shape)
        self._exposure_ms = np.array(record.exposure_ms).reshape(self._events.shape)
        self._index = np.array(record.index).reshape(self._events.shape)
        self._fresh = self._index[CLASS_OF, 0].tolist()


def _classes(uses: Ints) -> Ints:
    classes: Ints = CLASS_OF[np.minimum(uses, len(CLASS_OF) - 1)]
    return classes


def _buckets(ages_ms: Floats) -> Ints:
    """Two buckets an octave from 4 s on; by logarithm, since a search among edges is three times as slow."""
    octaves = np.log2(np.maximum(ages_ms, SHORTEST_MS / 2) / SHORTEST_MS)
    buckets: Ints = np.clip((2 * octaves).astype(np.int64) + (octaves >= 0), 0, len(EDGES_MS) - 2)
    return buckets


def _gittins(rates: Floats) -> Floats:
    """Per class and bucket, the best of uses over time held, over all buckets at whose end one may give up."""
    widths = np.diff(EDGES_MS)
    chance = -np.expm1(-rates * widths)
    # Time held in a bucket: its width if nothing comes, about half of it if the use comes.
    held = widths * (1 - chance / 2)
    index = np.zeros_like(rates)
    for start in range(rates.shape[1]):
        alive = np.cumprod(1 - chance[:, start:], axis=1)
        before = np.concatenate([np.ones((rates.shape[0], 1)), alive[:, :-1]], axis=1)
        earned = np.cumsum(before * chance[:, start:], axis=1)
        spent = np.cumsum(before * held[:, start:], axis=1)
        index[:, start] = np.max(earned / spent, axis=1)
    return index
