"""Rules about patterns of requests (D10)."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from msgspec import Meta

from analytics import patterns
from analytics.pattern_planning import GROUP_LIFE_MS
from analytics.records import Section
from analytics.request_features import Features
from analytics.request_groups import RequestGroups
from analytics.stores import MemoryMapStore
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


class Told(Input, frozen=True, kw_only=True):
    """A request: when it came, for which model, and what it was like."""

    at_ms: int
    version: str
    tokens: Annotated[int, Meta(ge=1)]
    shares: tuple[float, float, float, float] = (0.0, 1.0, 0.0, 0.0)
    latency_ms: Annotated[float, Meta(gt=0)] | None = None


class GroupsInput(Input, frozen=True, kw_only=True):
    """Requests of one scope in the order in which they came; shares of instructions, user, assistant and tool."""

    requests: list[Told]
    life_ms: Annotated[int, Meta(ge=1)] = GROUP_LIFE_MS


@rule(
    "request_groups",
    "D10",
    {
        "requests": [
            {"at_ms": 1_000 * i, "version": "llama-3-8b", "tokens": tokens, "shares": shares, "latency_ms": latency_ms}
            for i, (tokens, shares, latency_ms) in enumerate(
                [(220, [0.8, 0.2, 0.0, 0.0], 300.0), (4_000, [0.1, 0.2, 0.1, 0.6], 2_400.0)] * 6
            )
        ]
    },
)
def request_groups(asked: GroupsInput) -> object:
    """Groups of like requests after the last one, heaviest first; lighter ones than five requests are left out."""
    groups = RequestGroups(asked.life_ms, Section(MemoryMapStore(), "g"))
    for told in asked.requests:
        groups.add("scope", Features(told.version, float(told.tokens), told.shares, told.latency_ms), told.at_ms)
    newest_ms = max((told.at_ms for told in asked.requests), default=0)
    return [
        {"number": group.number, "version": group.version, "requests": group.requests, "share": group.share}
        | group.evidence
        for group in groups.told(newest_ms)
    ]


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
