"""Settings of the clusters of a scope, fixed for the life of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from analytics.cluster_radius import CALIBRATED_EPS, WIDEST_EPS, eps_of
from analytics.clustering import MIN_SAMPLES, NEIGHBOURS
from analytics.knobs import knob
from analytics.timescale import scaled

SPEC_WINDOW = 500
TUNED_WINDOW = 10_000


@dataclass(frozen=True)
class ClusterConfig:
    """Settings of `ScopeClusters`. Durations are unscaled; `time_scale` shortens them together.

    Attributes:
        eps: radius in cosine distance by encoder fingerprint; one that is not listed has the calibrated radius of the
            rule where that is known, else 0.32 of the reference rule.
    """

    rule: str = knob("tuned", "Which rule finds clusters.", choices=("spec", "tuned"))

    stride_ms: int = knob(30_000, "How often clusters are found again.", unit="ms", low=1000, high=3_600_000)
    window: int = knob(
        0,
        "Distinct queries that are clustered, the last ones; 0: 500 by rule spec, 10,000 by rule tuned.",
        unit="queries",
        low=0,
        high=10_000,
    )
    neighbours: int = knob(
        NEIGHBOURS, "Nearest queries that are looked at, itself included.", unit="queries", low=5, high=10_000
    )
    min_samples: int = knob(
        MIN_SAMPLES, "Queries within the radius, itself included, that make a core.", unit="queries", low=2, high=1000
    )
    eps: Mapping[str, float] = field(default_factory=dict)
    mass_ms: int = knob(
        300_000, "Time over which requests make a cluster's mass.", unit="ms", low=1000, high=86_400_000
    )
    max_age_ms: int = knob(
        3_600_000,
        "A query that nobody asked for so long leaves: if it comes again it is embedded again.",
        unit="ms",
        low=1000,
        high=604_800_000,
    )
    max_links: int = knob(
        4_000_000,
        "Pairs of queries within the radius that rule tuned holds, 8 bytes each; with more it looks at fewer queries.",
        unit="pairs",
        low=1_000,
        high=50_000_000,
    )
    max_members: int = knob(50, "Members that are named of a cluster.", unit="queries", low=1, high=10_000)
    max_places: int = knob(
        20_000, "Panes of a scope's shards and pools whose counts are held.", unit="panes", low=100, high=1_000_000
    )
    redis_pool: str = knob("", "The pool whose planner hears of clusters.")
    time_scale: float = knob(1.0, "How much faster than the calendar event time runs.", low=0.01, high=10_000)

    def eps_of(self, fingerprint: str) -> float:
        """The radius for an encoder."""
        return eps_of(fingerprint, self.eps, CALIBRATED_EPS if self.rule == "spec" else WIDEST_EPS)

    @property
    def queries(self) -> int:
        """How many queries are clustered."""
        return self.window or (SPEC_WINDOW if self.rule == "spec" else TUNED_WINDOW)

    @property
    def scaled_stride_ms(self) -> int:
        """The stride as it passes."""
        return scaled(self.stride_ms, self.time_scale)

    @property
    def scaled_mass_ms(self) -> int:
        """The mass's window as it passes, at least one stride."""
        return max(scaled(self.mass_ms, self.time_scale), self.scaled_stride_ms)

    @property
    def scaled_max_age_ms(self) -> int:
        """The longest life without a request as it passes, at least as long as a request counts."""
        return max(scaled(self.max_age_ms, self.time_scale), self.scaled_mass_ms)
