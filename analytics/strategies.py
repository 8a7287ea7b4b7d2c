"""Warm-up strategies and the tiered schedule (D14): which keys of a change are fetched, in which waves.

A strategy selects; the schedule spreads what was selected over time. Both are pure functions of what was announced, so
that a recovery sends the same commands at the same event times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from schemas.canonical import h64


class Wave(NamedTuple):
    """Keys that may go out together.

    Attributes:
        offset_ms: from the start of the schedule.
        keys: most wanted first.
        in_flight: how many of them may be under way at a time; 0 for all.
    """

    offset_ms: int
    keys: tuple[str, ...]
    in_flight: int = 0


@dataclass(frozen=True)
class Tiers:
    """Sizes of the schedule: ranks up to `first` at once, up to `top` in batches, the rest lazily.

    Attributes:
        in_flight: bound on what is under way of the first tier.
        batch, pause_ms: size of a batch of the second tier and the pause before each.
    """

    first: int = 100
    top: int = 1_000
    in_flight: int = 32
    batch: int = 50
    pause_ms: int = 2_000


class Selection(NamedTuple):
    """What a strategy takes.

    Attributes:
        keys: taken, most wanted first.
        coverage: share of the known demand that they stand for; of the keys where no demand is known.
        cost: how many values have to be fetched.
    """

    keys: tuple[str, ...]
    coverage: float
    cost: int


def schedule_warmup(keys: Sequence[str], tiers: Tiers | None = None) -> tuple[Wave, ...]:
    """Waves for keys in order of rank. What is beyond `top` is in none: its first reader fetches it.

    >>> [(wave.offset_ms, len(wave.keys)) for wave in schedule_warmup([str(n) for n in range(220)])]
    [(0, 100), (2000, 50), (4000, 50), (6000, 20)]
    """
    sizes = tiers or Tiers()
    first, step = tuple(keys[: min(sizes.first, sizes.top)]), max(1, sizes.batch)
    waves = [Wave(0, first, sizes.in_flight)] if first else []
    for number, start in enumerate(range(sizes.first, min(len(keys), sizes.top), step), len(waves)):
        waves.append(Wave(number * sizes.pause_ms, tuple(keys[start : min(start + step, sizes.top)])))
    return tuple(waves)


def hot_top_n(keys: Sequence[str], top: int, demand: Mapping[str, float] | None = None) -> Selection:
    """The `top` most wanted keys: by demand where it is known, else in the order given. Equals keep that order."""
    counts = demand or {}
    ranked = sorted(dict.fromkeys(keys), key=lambda key: -counts.get(key, 0.0))
    return _selected(tuple(ranked[:top]), ranked, counts)


def full_snapshot(keys: Sequence[str], known: Mapping[str, str], versions: Mapping[str, str]) -> Selection:
    """Every key whose version is not the one that was fetched before: all at first, increments afterwards.

    Args:
        known: version of each key that was fetched.
        versions: version of each key now; a key without one is always fetched.
    """
    everything = tuple(dict.fromkeys(keys))
    changed = tuple(key for key in everything if key not in versions or known.get(key) != versions[key])
    return Selection(changed, 1.0, len(changed))


def sampled(keys: Sequence[str], share: float, salt: str, demand: Mapping[str, float] | None = None) -> Selection:
    """Each key with probability `share` over salts, always the same for the same salt."""
    everything = tuple(dict.fromkeys(keys))
    taken = tuple(key for key in everything if h64(key, salt) / 2**64 < share)
    return _selected(taken, everything, demand or {})


def _selected(taken: tuple[str, ...], everything: Sequence[str], demand: Mapping[str, float]) -> Selection:
    total = sum(demand.get(key, 0.0) for key in everything)
    if total > 0:
        coverage = sum(demand.get(key, 0.0) for key in taken) / total
    else:
        coverage = len(taken) / len(everything) if everything else 0.0
    return Selection(taken, coverage, len(taken))
