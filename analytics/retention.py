"""Retention that tunes itself: decayed hotness whose half-life follows the traffic's own reuse (D11).

The half-life is a factor times the running median of the reuse gap. Which factor, of 2 to 3, shadow caches decide: each
plays the same policy with one factor over a sample of prefix families at the same share of the capacity, without
holding a block. The factor whose shadow found most is taken.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable
from dataclasses import dataclass

from analytics.cache_models import Prompt
from analytics.hot_cache import HotCache
from analytics.records import Record, pack, unpack
from analytics.reuse_gaps import ReuseGaps


class RetentionRecord(Record, frozen=True, array_like=True):
    """A self-tuning pool: the factor in force, the bytes of its parts, what each shadow found, the next retuning."""

    factor: float
    gaps: bytes
    pool: bytes
    shadows: tuple[bytes, ...]
    shadow_found: tuple[int, ...]
    retune_at_ms: float | None


@dataclass(frozen=True)
class RetentionConfig:
    """Settings of a self-tuning pool; none of them is a property of a traffic.

    Args:
        half_life_ms: before anything is known.
        factors: of the median gap that compete, in rising order; the middle one begins.
        retune_ms: how often the half-life is looked at.
        tolerance: relative change below which it stays, so that levels are not rewritten for nothing.
        sampled: one of so many families is played by the shadows.
        max_ghosts: evicted runs that are remembered, in the pool and in each shadow.
    """

    half_life_ms: float = 300_000.0
    factors: tuple[float, ...] = (2.0, 2.5, 3.0)
    retune_ms: float = 30_000.0
    tolerance: float = 0.1
    sampled: int = 4
    max_ghosts: int = 80_000

    def build(self, capacity_blocks: int) -> Retention:
        """A pool of so many blocks."""
        return Retention(self, capacity_blocks)


class Retention:
    """A pool of blocks and its shadows.

    Args:
        config: settings.
        capacity_blocks: of the replica.
    """

    def __init__(self, config: RetentionConfig, capacity_blocks: int) -> None:
        self._config = config
        middle = len(config.factors) // 2
        self.factor = config.factors[middle]
        self._gaps = ReuseGaps(config.half_life_ms / self.factor)
        self.pool = HotCache(capacity_blocks, config.half_life_ms, config.max_ghosts, self._gaps)
        shadow_blocks = max(1, capacity_blocks // config.sampled)
        self._shadows = [HotCache(shadow_blocks, config.half_life_ms, config.max_ghosts) for _ in config.factors]
        self._shadow_found = [0] * len(config.factors)
        self._retune_at_ms: float | None = None

    @property
    def half_life_ms(self) -> float:
        """In force."""
        return self.pool.half_life_ms

    def request(self, prompt: Prompt, at_ms: float) -> int:
        """What a request finds; afterwards its runs are there, as far as they are hot enough to stay."""
        if self._retune_at_ms is None:
            self._retune_at_ms = at_ms + self._config.retune_ms
        if at_ms >= self._retune_at_ms:
            self._retune(at_ms)
        if _sampled(prompt, self._config.sampled):
            for index, shadow in enumerate(self._shadows):
                self._shadow_found[index] += shadow.request(prompt, at_ms)
        return self.pool.request(prompt, at_ms)

    def snapshot(self) -> bytes:
        """Versioned bytes of the pool and all that it learned; keys of runs are strings or integers then."""
        shadows = tuple(shadow.snapshot() for shadow in self._shadows)
        found = tuple(self._shadow_found)
        gaps, pool = self._gaps.snapshot(), self.pool.snapshot()
        return pack(RetentionRecord(1, self.factor, gaps, pool, shadows, found, self._retune_at_ms))

    def restore(self, blob: bytes) -> None:
        """Takes what `snapshot` of a pool with the same factors gave."""
        record = unpack(blob, RetentionRecord)
        self.factor, self._retune_at_ms = record.factor, record.retune_at_ms
        self._shadow_found = list(record.shadow_found)
        self._gaps.restore(record.gaps)
        self.pool.restore(record.pool)
        for shadow, kept in zip(self._shadows, record.shadows, strict=True):
            shadow.restore(kept)

    def _retune(self, at_ms: float) -> None:
        median_ms = self._gaps.median_ms()
        best = max(self._shadow_found)
        if self._shadow_found[self._config.factors.index(self.factor)] < best:
            self.factor = self._config.factors[self._shadow_found.index(best)]
        for factor, cache in [*zip(self._config.factors, self._shadows, strict=True), (self.factor, self.pool)]:
            wanted_ms = factor * median_ms
            if abs(wanted_ms / cache.half_life_ms - 1) > self._config.tolerance:
                cache.retune(wanted_ms, at_ms)
        self._retune_at_ms = at_ms + self._config.retune_ms


def family(prompt: Prompt) -> Hashable:
    """What a prompt is sampled by: its second run, since all prompts of a service may begin with the same one."""
    return prompt[min(1, len(prompt) - 1)].key


def _sampled(prompt: Prompt, one_of: int) -> bool:
    return bool(prompt) and zlib.crc32(repr(family(prompt)).encode()) % one_of == 0
