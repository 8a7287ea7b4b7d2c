"""What a warm-up is worth: P(asked) × P(absent) × time saved × reward, per unit of what it costs (DESIGN §5, D15)."""

from __future__ import annotations

import math

from msgspec import Struct

SHARP = 4.0
"""How sharply a cache lets go: shape of the chance of absence by age."""


class Worth(Struct, frozen=True, gc=False):
    """Expected use of one warm-up.

    Attributes:
        p_asked: probability of being asked for within the horizon.
        p_absent: probability of not being there when asked.
        saved_ms: what a hit saves.
        reward: factor for what an answer earns; 1 as long as no rewards are known.
        cost: in the unit of the pool's budget: prefill tokens over all copies, or entries.
    """

    p_asked: float
    p_absent: float
    saved_ms: float
    cost: float
    reward: float = 1.0

    @property
    def expected_ms(self) -> float:
        """Expected saving."""
        return self.p_asked * self.p_absent * self.saved_ms * self.reward

    @property
    def density(self) -> float:
        """Expected saving per unit of cost, by which a plan is filled."""
        return self.expected_ms / self.cost if self.cost > 0 else 0.0


def p_absent_prior(rate_per_s: float, replicas: int, stay_ms: float) -> float:
    """Chance that natural traffic has not kept a target on a replica, where nothing else is known of it.

    A replica sees its part of the requests as a Poisson stream and keeps what was used within its characteristic
    time (Che's approximation of LRU): absent if nobody asked there for so long.
    """
    return math.exp(-rate_per_s / max(1, replicas) * stay_ms / 1000)


def p_absent_by_age(age_ms: float, stay_ms: float) -> float:
    """Chance that a replica has lost what it used last so long ago, where it keeps things for about `stay_ms`.

    An LRU cache lets go at one age, which is known to about a quarter: half are gone at `stay_ms`, all but a
    seventeenth of them are there at half of it (log-logistic, shape `SHARP`).
    """
    return 1.0 / (1.0 + (stay_ms / age_ms) ** SHARP) if age_ms > 0 else 0.0


def p_kept_by_renewal(rate_per_s: float, age_ms: float, stay_ms: float, horizon_ms: float) -> float:
    """Chance that a request within the horizon finds what it would not find if nobody touched it now.

    Left alone, a prefix of an LRU cache goes `stay_ms - age_ms` from now; touched, `stay_ms` from now. What counts is
    that the next request, of a Poisson stream, comes between the two: P(asked) × (P(kept if touched) - P(kept if not)).

    Args:
        rate_per_s: of requests that meet this replica.
        age_ms: since its last use there; below `stay_ms`.
    """
    end_ms = min(stay_ms, horizon_ms)
    return max(0.0, math.exp(-rate_per_s * (stay_ms - age_ms) / 1000) - math.exp(-rate_per_s * end_ms / 1000))


def kept_of_displaced(rate_per_s: float, margin_per_s: float) -> float:
    """What is left of a saving when what it pushes out has been paid for, 0 to 1.

    A prefix that is asked for at a rate earns as many hits for each second and token that it lies there. So does what
    it pushes out, at the rate of what an LRU cache is just about to let go of (`analytics.cache_shadow`).
    """
    return max(0.0, 1.0 - margin_per_s / rate_per_s) if rate_per_s > 0 else 0.0


def p_absent(known_resident: int, unknown: int, prior: float) -> float:
    """Chance of absence on the replica that a request will meet, when it may meet each alike.

    Args:
        known_resident: replicas whose residency is known and lasts.
        unknown: replicas of which nothing is known, each absent with `prior`.
    """
    replicas = known_resident + unknown
    return unknown * prior / replicas if replicas else 0.0
