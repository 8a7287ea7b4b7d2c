"""Settings of a prefix tree, which hold for the life of a job."""

from __future__ import annotations

import math
from dataclasses import dataclass

from analytics.half_life import HalfLifeConfig
from analytics.knobs import knob
from analytics.timescale import scaled

SAMPLED = 256
"""The shadows play one of so many segments, and the gaps of one of `GAPS_SAMPLED` chains count: what tuning costs stays
below a tenth of the tree's work."""
GAPS_SAMPLED = 4
MOST_GAPS = 8_192.0
"""Gaps that are remembered, one a request."""


@dataclass(frozen=True)
class PrefixConfig:
    """Settings of a prefix tree. Durations are unscaled; `time_scale` shortens them together."""

    slide_ms: int = knob(10_000, "How often candidates are published.", unit="ms", low=100, high=600_000)
    rule: str = knob(
        "spec",
        "How fast hotness fades: `tuned` follows the reuse gaps of each pool's traffic, `spec` is fixed.",
        choices=("tuned", "spec"),
    )
    half_life_ms: int = knob(
        300_000,
        "Time after which a request counts half; under `tuned` the first one.",
        unit="ms",
        low=1000,
        high=86_400_000,
    )
    half_life_floor_ms: int = knob(
        30_000,
        "A tuned half-life is never shorter, nor so short that a single request would clear the bar.",
        unit="ms",
        low=1000,
        high=86_400_000,
    )
    half_life_ceiling_ms: int = knob(
        7_200_000, "A tuned half-life is never longer.", unit="ms", low=1000, high=86_400_000
    )
    pool_tokens: int = knob(
        1_000_000,
        "Tokens that the KV pool of a replica holds, for the shadow caches that choose the half-life.",
        unit="tokens",
        low=1024,
        high=10_000_000_000,
    )
    horizon_ms: int = knob(
        120_000, "How far ahead the chance of being asked for looks.", unit="ms", low=1000, high=3_600_000
    )
    max_nodes: int = knob(20_000, "Segments that a scope and pool may hold.", unit="segments", low=10, high=10_000_000)
    max_ghosts: int = knob(80_000, "Left segments that are remembered.", unit="segments", low=0, high=10_000_000)
    max_pools: int = knob(
        256, "Pools of a scope that have a tree; the least asked for are forgotten.", unit="pools", low=1, high=10_000
    )
    max_candidates: int = knob(256, "Candidates that a slide may publish.", unit="candidates", low=1, high=100_000)
    max_path_segments: int = knob(
        32_768, "Segments of all candidates of a slide together.", unit="segments", low=1024, high=1_000_000
    )
    min_tokens: int = knob(16, "A shorter prefix fills no block of any replica.", unit="tokens", low=1, high=1_048_576)
    asked_rule: str = knob(
        "spec",
        "The chance of being asked for: `spec` as hotness promises it, `tuned` by how often prefixes as hot came back.",
        choices=("spec", "tuned"),
    )
    min_p_asked: float = knob(
        0.3, "A prefix less likely to be asked for within the horizon is no candidate.", low=0.001, high=0.999
    )
    trunk_share: float = knob(0.5, "Share of requests from which on a segment is trunk.", low=0.01, high=1)
    time_scale: float = knob(1.0, "How much faster than the calendar event time runs.", low=0.01, high=10_000)

    def scaled(self, duration_ms: float) -> int:
        """A duration as it passes under the time scale."""
        return scaled(duration_ms, self.time_scale)

    @property
    def lone_half_life_ms(self) -> float:
        """The half-life below which a single request would clear the bar, though most prefixes are asked for once."""
        return self.scaled(self.horizon_ms) * math.log(2) / -math.log1p(-self.min_p_asked)

    def half_life(self) -> HalfLifeConfig:
        """How the half-life of a pool follows its traffic."""
        return HalfLifeConfig(
            half_life_ms=self.scaled(self.half_life_ms),
            retune_ms=self.scaled(3 * self.slide_ms),
            sampled=SAMPLED,
            max_ghosts=max(1, self.max_ghosts // SAMPLED),
            most_gaps=MOST_GAPS,
            floor_ms=max(self.scaled(self.half_life_floor_ms), self.lone_half_life_ms),
            ceiling_ms=self.scaled(self.half_life_ceiling_ms),
        )
