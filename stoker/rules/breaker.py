"""Rules about when warming a replica would do harm (D16)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from analytics.breaker import Breaker, Reading
from analytics.breaker_rules import Load, should_break, spec
from analytics.foreground import Counters
from analytics.policy_sections import BreakerPolicy
from schemas.warmup_command import QOS_RANK, Qos
from stoker.rules.registry import Input, rule

Share = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]
LOOK_MS = 1_000


class UsageInput(Input, frozen=True, kw_only=True):
    """Usage of the KV blocks, blocks stored in the last second, and whether warm-ups run."""

    usage: Share
    allocations_per_s: Amount
    preheating: bool = False


@rule("should_circuit_break", "D16", {"usage": 0.74, "allocations_per_s": 1_500, "preheating": True})
def should_circuit_break(asked: UsageInput) -> object:
    """Whether to stop warming: usage above 0.85, above 0.70 while warm-ups run, and more than 1,200 allocations/s."""
    return should_break(asked.usage, asked.allocations_per_s, asked.preheating, BreakerPolicy())


class Warming(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A prefix that was warmed: tokens created, tokens found."""

    prefix: str
    created: Count = 0
    found: Count = 0
    duration_ms: Amount = 0.0


class Look(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A second of a replica: its load, the host's memory pressure, and what was stored, removed and warmed in it."""

    usage: Share = 0.0
    waiting: Count = 0
    allocations_per_s: Amount = 0.0
    p99_ms: Amount | None = None
    psi: Share | None = None
    removed: list[int] = msgspec.field(default_factory=list)
    stored: list[int] = msgspec.field(default_factory=list)
    warmed: list[Warming] = msgspec.field(default_factory=list)


class BreakerInput(Input, frozen=True, kw_only=True):
    """Seconds of a replica, in order."""

    looks: list[Look]
    rule: Literal["either", "code", "table"] = "either"
    blocks_total: Annotated[int, Meta(ge=1)] = 1_000
    block_tokens: Annotated[int, Meta(ge=1)] = 16


def _tuned(asked: BreakerInput) -> object:
    """Each second's state, who may begin, and why."""
    breaker, policy, told = Breaker(), BreakerPolicy(), []
    for number, look in enumerate(asked.looks, start=1):
        at_ms = number * LOOK_MS
        breaker.removed(at_ms, look.removed, policy)
        breaker.stored(at_ms, look.stored, policy)
        for each in look.warmed:
            breaker.warmed(at_ms, each.prefix, each.created, each.found, each.duration_ms, asked.block_tokens, policy)
        reading = Reading("1", _load(look), Counters(), asked.blocks_total)
        brake = breaker.look(at_ms, reading, look.psi, policy)
        classes: tuple[Qos, ...] = ("guaranteed", "burstable", "best_effort")
        says = {qos: brake.says(qos) for qos in sorted(classes, key=QOS_RANK.__getitem__)}
        told.append({"state": brake.state, "share": brake.share, "says": says, "reasons": brake.reasons})
    return told


@rule(
    "breaker",
    "D16",
    {
        "looks": [
            {"usage": 0.5, "p99_ms": 90},
            {"usage": 0.7, "waiting": 3, "p99_ms": 180},
            {"usage": 0.0, "psi": 0.2},
            {"usage": 0.0, "stored": [1, 2, 3, 4, 5, 6], "warmed": [{"prefix": "a", "created": 96}]},
            {"usage": 0.0, "removed": [1, 2, 3], "stored": [7, 8, 9], "warmed": [{"prefix": "b", "created": 48}]},
            {"usage": 0.9},
        ]
    },
    tuned=_tuned,
)
def breaker(asked: BreakerInput) -> object:
    """What warm-ups may do in each second: none holds them, they back off by the queue, or it breaks; by code or table.

    The second rule adds what warm-ups displaced, how users fare beside their own baseline, and memory pressure.
    """
    policy = BreakerPolicy(rule="spec", spec=asked.rule)
    preheating, told = False, []
    for look in asked.looks:
        preheating = preheating or bool(look.warmed)
        told.append(spec(_load(look), preheating, policy))
        preheating = bool(look.warmed)
    return told


def _load(look: Look) -> Load:
    return Load(look.usage, look.waiting, look.allocations_per_s, look.p99_ms)
