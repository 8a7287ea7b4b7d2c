"""Whether warming helped or harmed the service, told by tokens: a busy machine makes nobody find less.

What all requests of a run found cached is held against what plain LRU of the same capacity would have found of the same
requests, on the same replicas (`shadow`). A warm-up that displaces more than it brings shows here, whatever it does to
the prefixes that it warmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stoker.demo.effect import Shadowed
from stoker.demo.statistics import MIN_TOUCHES, MIN_UNITS, RESAMPLES

EXACT = 0.01
"""How far the shadow may be from the engines where nobody warms: it does not know when a request was let in."""


@dataclass(frozen=True)
class Gain:
    """Tokens found beyond plain LRU, as a share of all prompt tokens, with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> Literal["help", "harm", "none"]:
        """Whether the whole interval lies on one side of 0, and what was found beyond what the shadow cannot tell."""
        if abs(self.value) <= EXACT or self.low <= 0 <= self.high:
            return "none"
        return "help" if self.value > 0 else "harm"

    def __str__(self) -> str:
        return f"{100 * self.value:+.1f} points (95 % interval {100 * self.low:+.1f} to {100 * self.high:+.1f})"


def gain(touches: Sequence[Shadowed], seed: int) -> Gain | None:
    """What warming gained or cost in all; None where there is too little to say. Prefix families are drawn whole."""
    sums: dict[tuple[str, str], list[int]] = {}
    for seen in touches:
        family = sums.setdefault((seen.touch.scope, seen.touch.family), [0, 0])
        family[0] += seen.touch.cached_tokens - seen.lru_tokens
        family[1] += seen.touch.input_tokens
    of = np.asarray(list(sums.values()), dtype=np.float64).reshape(-1, 2)
    if len(touches) < MIN_TOUCHES or len(of) < MIN_UNITS or not of[:, 1].all():
        return None
    source = np.random.default_rng(seed)
    drawn = source.multinomial(len(of), np.full(len(of), 1 / len(of)), size=RESAMPLES) @ of
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975])
    return Gain(float(of[:, 0].sum() / of[:, 1].sum()), float(low), float(high))
