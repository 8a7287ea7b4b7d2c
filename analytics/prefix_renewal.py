"""Renewing a prefix that a replica holds: a hit makes it the last to leave, and computes only its last block (D11).

A warm-up of what is absent moves tokens in; one of what is resident only puts off when it goes. That is worth something
where the prefix would else be gone before its next request, and something else has to go for it: `analytics.worth` has
both. It is worth more the later it comes, so that nothing is renewed before half of its stay has passed.

When a replica used a prefix last is known from what warm-ups and the engine told, and where it is alone from every
request. Behind several replicas nobody knows which of them a request met: there only what was warmed is renewed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from analytics.commands import NEVER_MS
from analytics.replicas import Ready
from analytics.targets import Target
from analytics.worth import kept_of_displaced, p_kept_by_renewal

RENEW_AGE = 0.5
"""Of the stay; before that a renewal is not worth a command."""


class Held(NamedTuple):
    """What is asked of a prefix that some replicas may hold.

    Attributes:
        rate_per_s: of its requests, by all replicas together. last_ms: of the newest of them.
        stay_ms: how long a replica keeps what nobody asks for. horizon_ms: how far ahead a chance looks.
        margin_per_s: at which rate that is asked for which must go for it.
        least: chance of a hit more, on one replica, below which it is left.
    """

    rate_per_s: float
    last_ms: int
    stay_ms: float
    horizon_ms: float
    margin_per_s: float
    least: float


class Renewal(NamedTuple):
    """Which replicas a prefix is renewed on.

    Attributes:
        p_kept: chance of a hit more on one of them, what it displaces paid for; the mean.
        due_ms: when it is time on the first of the others that hold it; far away where there is none.
    """

    names: tuple[str, ...]
    p_kept: float
    due_ms: int


def used_ms(target: Target | None, replica: str, mark: int, last_ms: int, alone: bool) -> int:
    """When a replica had a prefix last, as far as anybody knows; 0 where nobody does, or it was lost since.

    Args:
        mark: of its incarnation. alone: whether all requests meet it.
    """
    stay = None if target is None else target.stays.get(replica)
    if stay is None or stay.mark not in (0, mark):
        return last_ms if alone else 0
    held_ms = stay.seen_ms if stay.until_ms else 0
    return max(held_ms, last_ms) if alone and last_ms > stay.seen_ms else held_ms


def renewal_of(held: Held, target: Target | None, ready: Ready, replicas: int, at_ms: int) -> Renewal:
    """Where a prefix is worth a renewal now.

    Args:
        ready: those of which it fills a block.
        replicas: that share the requests.
    """
    rate_per_s = held.rate_per_s / replicas
    left = kept_of_displaced(rate_per_s, held.margin_per_s)
    names, found, due_ms = [], 0.0, NEVER_MS
    for name, mark in zip(ready.names, ready.marks, strict=True):
        since_ms = used_ms(target, name, mark, held.last_ms, replicas == 1)
        age_ms = at_ms - since_ms
        if not since_ms or age_ms >= held.stay_ms:
            continue
        soon_ms = since_ms + math.ceil(RENEW_AGE * held.stay_ms)
        if soon_ms > at_ms:
            due_ms = min(due_ms, soon_ms)
            continue
        p_kept = left * p_kept_by_renewal(rate_per_s, age_ms, held.stay_ms, held.horizon_ms)
        if held.last_ms > since_ms:
            # A request met this replica since then, or one of the others.
            p_kept *= (1 - 1 / replicas) * math.exp(-rate_per_s * (held.last_ms - since_ms) / 1000)
        if p_kept > 0 and p_kept >= held.least:
            names.append(name)
            found += p_kept
        else:
            due_ms = min(due_ms, at_ms)
    return Renewal(tuple(names), found / len(names) if names else 0.0, due_ms)
