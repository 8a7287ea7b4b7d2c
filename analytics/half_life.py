"""The half-life of hotness, learned from a traffic's own reuse: a factor times the running median of its gaps (D11).

Which factor, of 2 to 3, shadow caches decide: each plays decayed hotness with one factor over a sample of prefix
families at the same share of the capacity, without holding a block. The factor whose shadow found most is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from analytics.cache_models import Prompt
from analytics.hot_cache import HotCache
from analytics.records import Record, pack, unpack
from analytics.reuse_gaps import MOST_GAPS, ReuseGaps


class HalfLifeRecord(Record, frozen=True, array_like=True):
    """What was learned: half-life and factor in force, gaps, what each shadow holds and has found, the next look."""

    half_life_ms: float
    factor: float
    gaps: bytes
    shadows: tuple[bytes, ...]
    shadow_found: tuple[int, ...]
    look_at_ms: float | None


@dataclass(frozen=True)
class HalfLifeConfig:
    """Settings; none of them is a property of a traffic.

    Args:
        half_life_ms: before anything is known.
        factors: of the median gap that compete, in rising order; the middle one begins.
        retune_ms: how often the half-life is looked at.
        tolerance: relative change below which it stays.
        sampled: one of so many families is played by the shadows.
        max_ghosts: evicted runs that are remembered, in a pool of blocks and in each shadow.
        most_gaps: that are remembered.
        floor_ms, ceiling_ms: of the half-life.
    """

    half_life_ms: float = 300_000.0
    factors: tuple[float, ...] = (2.0, 2.5, 3.0)
    retune_ms: float = 30_000.0
    tolerance: float = 0.1
    sampled: int = 4
    max_ghosts: int = 80_000
    most_gaps: float = MOST_GAPS
    floor_ms: float = 0.0
    ceiling_ms: float = math.inf


class HalfLife:
    """A half-life, and what it follows.

    Args:
        config: settings.
        capacity: of the pool whose hotness it is; a shadow has its share of it.

    Attributes:
        gaps: told the time between two uses by who sees them.
        ms: in force.
        factor: of the median gap, in force.
    """

    def __init__(self, config: HalfLifeConfig, capacity: int) -> None:
        self._config = config
        self.ms = float(config.half_life_ms)
        self.factor = config.factors[len(config.factors) // 2]
        self.gaps = ReuseGaps(config.half_life_ms / self.factor, most=config.most_gaps)
        share = max(1, capacity // config.sampled)
        self._shadows = [HotCache(share, config.half_life_ms, config.max_ghosts) for _ in config.factors]
        self._found = [0] * len(config.factors)
        self._look_at_ms: float | None = None

    def play(self, prompt: Prompt, at_ms: float) -> None:
        """A request of a family of the sample."""
        for index, shadow in enumerate(self._shadows):
            self._found[index] += shadow.request(prompt, float(at_ms))

    def look(self, at_ms: float) -> bool:
        """Says whether the half-life has changed; where it is not time to look it has not."""
        if self._look_at_ms is None:
            self._look_at_ms = float(at_ms + self._config.retune_ms)
        if at_ms < self._look_at_ms:
            return False
        self._look_at_ms = float(at_ms + self._config.retune_ms)
        median_ms, factors = self.gaps.median_ms(), self._config.factors
        best = max(self._found)
        if self._found[factors.index(self.factor)] < best:
            self.factor = factors[self._found.index(best)]
        for factor, shadow in zip(factors, self._shadows, strict=True):
            wanted_ms = self._bounded(factor * median_ms)
            if self._differ(wanted_ms, shadow.half_life_ms):
                shadow.retune(wanted_ms, at_ms)
        wanted_ms = self._bounded(self.factor * median_ms)
        if not self._differ(wanted_ms, self.ms):
            return False
        self.ms = wanted_ms
        return True

    def snapshot(self) -> bytes:
        """Versioned bytes of all that was learned."""
        shadows = tuple(shadow.snapshot() for shadow in self._shadows)
        found, gaps = tuple(self._found), self.gaps.snapshot()
        return pack(HalfLifeRecord(1, self.ms, self.factor, gaps, shadows, found, self._look_at_ms))

    def restore(self, blob: bytes) -> None:
        """Takes what `snapshot` gave. Where other factors compete by now, the choice among them begins anew."""
        record = unpack(blob, HalfLifeRecord)
        self.ms, self._look_at_ms = record.half_life_ms, record.look_at_ms
        self.gaps.restore(record.gaps)
        if record.factor not in self._config.factors or len(record.shadows) != len(self._shadows):
            return
        self.factor, self._found = record.factor, list(record.shadow_found)
        for shadow, kept in zip(self._shadows, record.shadows, strict=True):
            shadow.restore(kept)

    def _bounded(self, wanted_ms: float) -> float:
        return min(max(wanted_ms, self._config.floor_ms), self._config.ceiling_ms)

    def _differ(self, wanted_ms: float, held_ms: float) -> bool:
        return abs(wanted_ms / held_ms - 1) > self._config.tolerance
