"""What a warm-up is worth: P(asked) × P(absent) × time saved × reward, per unit of what it costs (DESIGN §5, D15)."""

from __future__ import annotations

import math

from msgspec import Struct


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


def p_absent(known_resident: int, unknown: int, prior: float) -> float:
    """Chance of absence on the replica that a request will meet, when it may meet each alike.

    Args:
        known_resident: replicas whose residency is known and lasts.
        unknown: replicas of which nothing is known, each absent with `prior`.
    """
    replicas = known_resident + unknown
    return unknown * prior / replicas if replicas else 0.0
