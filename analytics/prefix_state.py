"""What everyone is told of how the hotness of prefixes fades."""

from __future__ import annotations

from analytics.envelopes import Fading
from schemas import PrefixState, encode


def state_of(told: Fading) -> bytes:
    """The insight, in the JSON of its topic."""
    return encode(
        PrefixState(
            scope=told.scope,
            pool=told.pool,
            rule=told.rule,
            at_ms=told.at_ms,
            half_life_ms=told.half_life_ms,
            median_gap_ms=told.median_gap_ms,
            factor=told.factor,
            gaps=told.gaps,
            nodes=told.nodes,
            ghosts=told.ghosts,
        )
    )
