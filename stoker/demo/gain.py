"""Whether warming helped or harmed the service, told by tokens: a busy machine makes nobody find less.

What all requests of a run found cached is held against what plain LRU of the same capacity would have found of the same
requests, on the same replicas (`shadow`). A warm-up that displaces more than it brings shows here, whatever it does to
the prefixes that it warmed. What plain LRU would have found has two bounds (`Shadowed`), which lie further apart on a
slower machine: beyond the higher one warming helped, below the lower one it did harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stoker.demo.effect import Shadowed
from stoker.demo.statistics import MIN_TOUCHES, MIN_UNITS, RESAMPLES

EXACT = 0.01
"""Nothing nearer to 0 has a verdict: the shadow is a model of the engine."""


@dataclass(frozen=True)
class Gain:
    """Tokens found beyond plain LRU, as a share of all prompt tokens.

    Attributes:
        value: beyond the nearer bound; 0 between the two.
        low, high: 2.5 % and 97.5 % of what is found beyond the higher bound and beyond the lower one.
    """

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
        touch = seen.touch
        family = sums.setdefault((touch.scope, touch.family), [0, 0, 0])
        family[0] += touch.cached_tokens - max(seen.lru_tokens, seen.most_tokens)
        family[1] += touch.cached_tokens - min(seen.lru_tokens, seen.most_tokens)
        family[2] += touch.input_tokens
    of = np.asarray(list(sums.values()), dtype=np.float64).reshape(-1, 3)
    if len(touches) < MIN_TOUCHES or len(of) < MIN_UNITS or not of[:, 2].all():
        return None
    source = np.random.default_rng(seed)
    drawn = source.multinomial(len(of), np.full(len(of), 1 / len(of)), size=RESAMPLES) @ of
    beyond, below, _ = of.sum(axis=0) / of[:, 2].sum()
    low, high = np.quantile(drawn[:, 0] / drawn[:, 2], 0.025), np.quantile(drawn[:, 1] / drawn[:, 2], 0.975)
    return Gain(float(beyond if beyond > 0 else min(below, 0.0)), float(low), float(high))
