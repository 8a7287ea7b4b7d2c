"""Rules about patterns of requests (D10)."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from msgspec import Meta

from analytics import patterns
from stoker.rules.registry import Input, rule


class PriorityInput(Input, frozen=True, kw_only=True):
    """Identity of what is warmed, and the pattern's rate."""

    fingerprint: str
    qps: Annotated[float, Meta(ge=0)]


@rule("prefill_priority", "D10", {"fingerprint": "shop-assistant", "qps": 40.0})
def prefill_priority(asked: PriorityInput) -> object:
    """Priority of a pattern's prefill by the reference formula, raw and as a command carries it."""
    return patterns.prefill_priority(asked.fingerprint, asked.qps)


class StateInput(Input, frozen=True, kw_only=True):
    """Whether the pattern was seen before, and which of its prefix's segments are resident, oldest first."""

    known: bool
    resident: list[bool]


@rule("pattern_state", "D10", {"known": True, "resident": [True, False, False]})
def pattern_state(asked: StateInput) -> object:
    """201 a new hot pattern, all of its prefix; 202 a known one, the missing segments only."""
    return patterns.pattern_state(asked.known, asked.resident)


class ConsecutiveInput(Input, frozen=True, kw_only=True):
    """Prompts of one session, the oldest first."""

    prompts: list[str]


@rule(
    "consecutive_prompts",
    "D10",
    {
        "prompts": [
            "List the open orders of customer 17 by date please now",
            "list the open orders of customer 17 by date please now",
            "List the open orders of customer 17 by date now please",
        ]
    },
)
def consecutive_prompts(asked: ConsecutiveInput) -> object:
    """Whether the last three prompts of a session resemble each other: adjacent Jaccard indices above 0.85."""
    sketches = [patterns.sketch_of(prompt) for prompt in asked.prompts]
    return {
        "pattern": patterns.consecutive_prompts(sketches),
        "jaccard": [patterns.jaccard(a, b) for a, b in pairwise(sketches)],
    }
