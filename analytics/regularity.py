"""Machines ask at even intervals: the variation of the gaps between requests, of a group and of each of its users.

The variation is the standard deviation of gaps over their mean: 1 for independent askers (Poisson), 0 for a clock.
Where many clocks run beside each other their sum looks independent again (Palm), so each user's own gaps count too: all
together, where everyone keeps the same interval, which shows with the first repetition, and each user for himself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytics.running_entropy import Integers, distinct

MIN_GAPS = 20
"""Gaps below which a variation of a group says nothing."""

MIN_OWN_GAPS = 4
"""Gaps of one user below which his variation says nothing: four independent ones vary by less than 0.3 in 4 % of cases.

Half of a group's requests must look like that, so a few of them harm nobody."""


@dataclass(frozen=True)
class Regularity:
    """How evenly requests came.

    Attributes:
        variation: of the gaps between neighbours, whoever asked; 1 where there are too few.
        own_variation: of all users' own gaps together; 1 where there are too few.
        repeating_share: part of the requests whose user asked more than once.
        regular_share: part of the requests whose user's own gaps vary by less than the bar.
    """

    variation: float = 1.0
    own_variation: float = 1.0
    repeating_share: float = 0.0
    regular_share: float = 0.0


def variation(gaps: Integers) -> float:
    """Standard deviation over mean; 1 where there is no gap or no time passes."""
    mean = float(gaps.mean()) if len(gaps) else 0.0
    return float(gaps.std()) / mean if mean > 0 else 1.0


def regularity(users: Integers, at_ms: Integers, bar: float) -> Regularity:
    """How evenly some requests came, in any order.

    Args:
        users, at_ms: columns of equal length; times in milliseconds.
        bar: below this variation a user's gaps are a machine's (D2: 0.3).
    """
    if not len(users):
        return Regularity()
    order = np.lexsort((at_ms, users))
    gaps = np.diff(at_ms[order])[np.diff(users[order]) == 0]
    _, times = distinct(users)
    ends = np.cumsum(times - 1)
    regular = sum(
        own + 1
        for own, end in zip((times - 1).tolist(), ends.tolist(), strict=True)
        if own >= MIN_OWN_GAPS and variation(gaps[end - own : end]) < bar
    )
    return Regularity(
        variation=_enough(np.diff(np.sort(at_ms))),
        own_variation=_enough(np.sort(gaps)),
        repeating_share=float(times[times > 1].sum()) / len(users),
        regular_share=regular / len(users),
    )


def _enough(gaps: NDArray[np.int64]) -> float:
    return variation(gaps) if len(gaps) >= MIN_GAPS else 1.0
