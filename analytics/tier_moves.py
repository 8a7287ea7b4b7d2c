"""Which runs of a host tier are moved up: the best of them, while they beat what they displace (D11)."""

from __future__ import annotations

import numpy as np

from analytics.reuse_model import Floats, Ints
from analytics.tier_runs import TierRuns


def moves(runs: TierRuns, rows: Ints, worth: Floats, room: int, budget: int, margin: float) -> list[int]:
    """Rows to move, best first.

    Args:
        rows, worth: all runs of both tiers, and what holding each is worth.
        room: blocks that the small cache has free; below 0 where it is to let some go.
        budget: blocks that may be moved.
        margin: how much more a run must be worth than what it displaces.
    """
    held, blocks = runs.held[rows], runs.blocks[rows]
    lacking = held < blocks
    below, wanted_worth, missing = rows[lacking], worth[lacking], (blocks - held)[lacking]
    if not len(below) or budget <= 0:
        return []
    above = held > 0
    held_worth = worth[above]
    order = np.argsort(held_worth, kind="stable")
    held_worth = held_worth[order] * margin
    filled = np.cumsum(held[above][order]) + room
    if room <= 0 and len(held_worth):
        better = wanted_worth > held_worth[0]
        below, wanted_worth, missing = below[better], wanted_worth[better], missing[better]
    best = np.argsort(-wanted_worth, kind="stable")
    below, wanted_worth = below[best], wanted_worth[best]
    needed = np.cumsum(missing[best])
    displaced = np.searchsorted(filled, needed)
    against = np.concatenate([held_worth, [np.inf]])[np.minimum(displaced, len(held_worth))]
    pays = (needed <= room) | (wanted_worth > against)
    count = int(np.argmin(pays)) if not pays.all() else len(pays)
    found: list[int] = below[: min(count, int(np.searchsorted(needed, budget, side="right")))].tolist()
    return found
