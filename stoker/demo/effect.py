"""What warming was worth in a run: first touches of warmed and held-out units, by intention to treat.

A *unit* is a prefix family; a request touches the unit that is deepest among its segments. A touch is *eligible* when

1. plain LRU would have lost the family by then: the shadow of the replica's pool, fed with the same requests and no
   warm-ups, does not have it (`shadow`); and
2. a prefix command for the unit, of either arm, was issued earlier in the run.

Neither depends on the unit's arm, so both arms are picked alike. An eligible touch counts for the arm of its unit
whatever became of the commands: too late, failed, displaced again, or not needed. All other requests are the rest;
so are those of scopes that withhold their texts, which can be warmed in neither arm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas import Arm
from stoker.demo.shadow import ShadowLru

MIN_UNITS = 5
MIN_TOUCHES = 20
"""An interval needs at least so many units and touches in each arm; below that it would be a number without meaning."""
RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class Touch:
    """A finished request, as far as the effect is concerned.

    Attributes:
        at_ms: arrival.
        scope: of its tenant.
        segments, tokens: chained hashes and lengths, oldest first.
        ttft_ms: None when it failed before its first token.
        cached_tokens, input_tokens: of the prompt; 0 cached where the engine did not tell.
    """

    at_ms: int
    scope: str
    replica: str
    segments: tuple[str, ...]
    tokens: tuple[int, ...]
    ttft_ms: float | None
    cached_tokens: int
    input_tokens: int


@dataclass(frozen=True, slots=True)
class Issued:
    """A prefix command, as far as the effect is concerned."""

    at_ms: int
    scope: str
    unit: str
    arm: Arm


@dataclass(frozen=True)
class Sample:
    """The touches of one group, in parallel sequences."""

    units: tuple[str, ...] = ()
    ttft_ms: tuple[float, ...] = ()
    cached_tokens: int = 0
    input_tokens: int = 0
    lru_tokens: int = 0

    @property
    def count(self) -> int:
        """Touches with a first token."""
        return len(self.ttft_ms)

    @property
    def distinct_units(self) -> int:
        """Units among them."""
        return len(set(self.units))

    @property
    def hit_rate(self) -> float | None:
        """Share of prompt tokens that were cached; None without requests."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else None

    @property
    def lru_hit_rate(self) -> float | None:
        """The same share in the shadow: what plain LRU alone would have had."""
        return self.lru_tokens / self.input_tokens if self.input_tokens else None

    def quantile_ms(self, share: float) -> float | None:
        """Quantile of the time to first token, linear between order statistics; None without touches."""
        return float(np.quantile(np.asarray(self.ttft_ms), share)) if self.ttft_ms else None

    @property
    def mean_ms(self) -> float | None:
        """Mean time to first token."""
        return float(np.mean(np.asarray(self.ttft_ms))) if self.ttft_ms else None


@dataclass(frozen=True)
class Groups:
    """All touches of a run, each in exactly one group."""

    warmed: Sample
    held_out: Sample
    rest: Sample

    @property
    def everything(self) -> Sample:
        """All of them together: what warming did to the service as a whole."""
        parts = (self.warmed, self.held_out, self.rest)
        return Sample(
            units=tuple(unit for part in parts for unit in part.units),
            ttft_ms=tuple(ttft for part in parts for ttft in part.ttft_ms),
            cached_tokens=sum(part.cached_tokens for part in parts),
            input_tokens=sum(part.input_tokens for part in parts),
            lru_tokens=sum(part.lru_tokens for part in parts),
        )


def grouped(touches: Iterable[Touch], commands: Iterable[Issued], capacity_tokens: int) -> Groups:
    """Sorts touches into groups; see the module's text for the rule.

    Args:
        touches: all requests of the run, of all replicas.
        commands: prefix commands of the scopes that can be warmed.
        capacity_tokens: size of one replica's pool.
    """
    first: dict[tuple[str, str], Issued] = {}
    for issued in sorted(commands, key=lambda issued: issued.at_ms):
        first.setdefault((issued.scope, issued.unit), issued)
    shadows: dict[str, ShadowLru] = {}
    members: Mapping[str, list[_Member]] = {"warm": [], "hold": [], "rest": []}
    for touch in sorted(touches, key=lambda touch: touch.at_ms):
        shadow = shadows.setdefault(touch.replica, ShadowLru(capacity_tokens))
        found = shadow.request(touch.segments, touch.tokens)
        depth, command = _deepest(touch, first)
        lost = command is not None and depth >= found
        group = command.arm if command is not None and lost and command.at_ms < touch.at_ms else "rest"
        members[group].append(_Member("" if command is None else command.unit, touch, sum(touch.tokens[:found])))
    return Groups(*(_sample(members[group]) for group in ("warm", "hold", "rest")))


@dataclass(frozen=True, slots=True)
class _Member:
    unit: str
    touch: Touch
    lru_tokens: int


def _deepest(touch: Touch, first: Mapping[tuple[str, str], Issued]) -> tuple[int, Issued | None]:
    """Position and first command of the deepest segment that is a unit."""
    for depth in range(len(touch.segments) - 1, -1, -1):
        command = first.get((touch.scope, touch.segments[depth]))
        if command is not None:
            return depth, command
    return -1, None


def _sample(members: Sequence[_Member]) -> Sample:
    timed = [(member.unit, member.touch.ttft_ms) for member in members if member.touch.ttft_ms is not None]
    return Sample(
        units=tuple(unit for unit, _ in timed),
        ttft_ms=tuple(ttft for _, ttft in timed),
        cached_tokens=sum(member.touch.cached_tokens for member in members),
        input_tokens=sum(member.touch.input_tokens for member in members),
        lru_tokens=sum(member.lru_tokens for member in members),
    )


def enough(groups: Groups) -> bool:
    """Whether there are units and touches enough in both arms for an interval to mean anything."""
    arms = (groups.warmed, groups.held_out)
    return all(arm.count >= MIN_TOUCHES and arm.distinct_units >= MIN_UNITS for arm in arms)


def ratio_interval(groups: Groups, seed: int, level: float = 0.95) -> tuple[float, float] | None:
    """Interval of mean(warmed) / mean(held out), by a bootstrap that draws whole units; None where data is too little.

    Touches of one unit resemble each other, so units are drawn, with replacement, in each arm apart (percentiles).
    """
    if not enough(groups):
        return None
    source = np.random.default_rng(seed)
    means = [_resampled_means(sample, source) for sample in (groups.warmed, groups.held_out)]
    ratios = means[0] / np.maximum(means[1], 1e-9)
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _resampled_means(sample: Sample, source: np.random.Generator) -> NDArray[np.float64]:
    _, which = np.unique(np.asarray(sample.units), return_inverse=True)
    counts = np.bincount(which).astype(np.float64)
    sums = np.bincount(which, weights=np.asarray(sample.ttft_ms))
    drawn = source.integers(0, len(counts), size=(RESAMPLES, len(counts)))
    means: NDArray[np.float64] = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    return means
