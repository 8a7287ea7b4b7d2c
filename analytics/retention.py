"""Retention that tunes itself: decayed hotness whose half-life follows the traffic's own reuse (D11)."""

from __future__ import annotations

import zlib
from collections.abc import Hashable
from dataclasses import dataclass

from analytics.cache_models import Prompt
from analytics.half_life import HalfLife, HalfLifeConfig
from analytics.hot_cache import HotCache
from analytics.records import Record, pack, unpack


class RetentionRecord(Record, frozen=True, array_like=True):
    """A self-tuning pool: what was learned, and the pool."""

    half_life: bytes
    pool: bytes


@dataclass(frozen=True)
class RetentionConfig(HalfLifeConfig):
    """Settings of a self-tuning pool: those of its half-life."""

    def build(self, capacity_blocks: int) -> Retention:
        """A pool of so many blocks."""
        return Retention(self, capacity_blocks)


class Retention:
    """A pool of blocks and its half-life.

    Args:
        config: settings.
        capacity_blocks: of the replica.
    """

    def __init__(self, config: RetentionConfig, capacity_blocks: int) -> None:
        self._sampled = config.sampled
        self._half_life = HalfLife(config, capacity_blocks)
        self.pool = HotCache(capacity_blocks, config.half_life_ms, config.max_ghosts, self._half_life.gaps)

    @property
    def half_life_ms(self) -> float:
        """In force."""
        return self._half_life.ms

    @property
    def factor(self) -> float:
        """Of the median gap, in force."""
        return self._half_life.factor

    def request(self, prompt: Prompt, at_ms: float) -> int:
        """What a request finds; afterwards its runs are there, as far as they are hot enough to stay."""
        if self._half_life.look(at_ms):
            self.pool.retune(self._half_life.ms, at_ms)
        if prompt and _sampled(prompt, self._sampled):
            self._half_life.play(prompt, at_ms)
        return self.pool.request(prompt, at_ms)

    def snapshot(self) -> bytes:
        """Versioned bytes of the pool and all that it learned; keys of runs are strings or integers then."""
        return pack(RetentionRecord(1, self._half_life.snapshot(), self.pool.snapshot()))

    def restore(self, blob: bytes) -> None:
        """Takes what `snapshot` of a pool with the same factors gave."""
        record = unpack(blob, RetentionRecord)
        self._half_life.restore(record.half_life)
        self.pool.restore(record.pool)


def family(prompt: Prompt) -> Hashable:
    """What a prompt is sampled by: its second run, since all prompts of a service may begin with the same one."""
    return prompt[min(1, len(prompt) - 1)].key


def _sampled(prompt: Prompt, one_of: int) -> bool:
    return zlib.crc32(repr(family(prompt)).encode()) % one_of == 0
