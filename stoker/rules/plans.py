"""Rules about when and what is warmed: strategies and tiers (D14), the plan of a pool (D15), and arms (D17)."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from analytics import experiments, strategies
from analytics.envelopes import Candidate, Candidates, Root, Tag, body_of, seal, tag_of
from analytics.plan_config import PlanConfig
from analytics.planners import planner_of
from analytics.policy import BudgetPolicy, ExperimentPolicy, PlanPolicy, PolicyBook, PolicyDefaults
from analytics.stores import MemoryMapStore
from schemas import ReplicaSample, WarmupCommand, encode
from schemas.canonical import h128
from schemas.fields import Ms, Share
from stoker.rules.registry import Input, rule

POOL = "gpu"
Size = Annotated[int, Meta(ge=1)]
Demand = dict[str, Annotated[float, Meta(ge=0)]]


class ScheduleInput(Input, frozen=True, kw_only=True):
    """Keys, most wanted first, and the sizes of the tiers."""

    keys: list[str]
    first: Size = strategies.Tiers().first
    top: Size = strategies.Tiers().top
    in_flight: Annotated[int, Meta(ge=0)] = strategies.Tiers().in_flight
    batch: Size = strategies.Tiers().batch
    pause_ms: Annotated[int, Meta(ge=0)] = strategies.Tiers().pause_ms


@rule(
    "schedule_warmup",
    "D14",
    {"keys": ["sku:1", "sku:2", "sku:3", "sku:4", "sku:5"], "first": 2, "top": 4, "batch": 1},
)
def schedule_warmup(asked: ScheduleInput) -> object:
    """Waves of keys: the first ranks at once, the next in batches, the rest lazily."""
    sizes = strategies.Tiers(**{size.name: getattr(asked, size.name) for size in fields(strategies.Tiers)})
    waves = strategies.schedule_warmup(asked.keys, sizes)
    return {"waves": waves, "lazy": asked.keys[asked.top :]}


class TopInput(Input, frozen=True, kw_only=True):
    """Keys, most wanted first, how many to take, and their demand where it is known."""

    keys: list[str]
    top: Size
    demand: Demand = msgspec.field(default_factory=dict)


@rule("hot_top_n", "D14", {"keys": ["a", "b", "c"], "top": 2, "demand": {"c": 7, "a": 2}})
def hot_top_n(asked: TopInput) -> object:
    """The most wanted keys, the share of demand that they cover, and their cost."""
    return strategies.hot_top_n(asked.keys, asked.top, asked.demand)


class SnapshotInput(Input, frozen=True, kw_only=True):
    """Keys of a static configuration, the version of each that was fetched before, and the one of now."""

    keys: list[str]
    known: dict[str, str] = msgspec.field(default_factory=dict)
    versions: dict[str, str] = msgspec.field(default_factory=dict)


@rule(
    "full_snapshot",
    "D14",
    {
        "keys": ["limits", "flags", "rates"],
        "known": {"limits": "1", "flags": "1"},
        "versions": {"limits": "1", "flags": "2"},
    },
)
def full_snapshot(asked: SnapshotInput) -> object:
    """Every key whose version is not the one that was fetched before: all at first, increments afterwards."""
    return strategies.full_snapshot(asked.keys, asked.known, asked.versions)


class SampledInput(Input, frozen=True, kw_only=True):
    """Keys, the share to take, and what decides which."""

    keys: list[str]
    share: Share
    salt: str = "stoker"
    demand: Demand = msgspec.field(default_factory=dict)


@rule("sampled", "D14", {"keys": ["a", "b", "c", "d"], "share": 0.5})
def sampled(asked: SampledInput) -> object:
    """A share of the keys, always the same for the same salt, with cost and coverage."""
    return strategies.sampled(asked.keys, asked.share, asked.salt, asked.demand)


class HotPrefix(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A hot prefix: its length, its rate, and the chance that it is asked for within the horizon."""

    name: str
    tokens: Size
    rate_per_s: Annotated[float, Meta(gt=0)]
    p_asked: Annotated[float, Meta(gt=0, le=1)]


class PlanInput(Input, frozen=True, kw_only=True):
    """Hot prefixes of one scope, ready replicas that hold none of them, and what may be spent."""

    prefixes: list[HotPrefix]
    replicas: Annotated[list[str], Meta(min_length=1)]
    prefill_tokens_per_s: Annotated[float, Meta(ge=1)] = BudgetPolicy().prefill_tokens_per_s
    prefill_share: Share = BudgetPolicy().prefill_share
    min_saved_ms: Annotated[float, Meta(ge=0)] = PlanPolicy().min_saved_ms
    copies: Size = PlanPolicy().copies
    hold_share: Share = 0.0
    block_tokens: Size = 16
    at_ms: Ms = 1_700_000_000_000


@rule(
    "plan",
    "D15",
    {
        "prefixes": [
            {"name": "terms", "tokens": 1000, "rate_per_s": 0.05, "p_asked": 0.99},
            {"name": "manual", "tokens": 4000, "rate_per_s": 0.01, "p_asked": 0.7},
        ],
        "replicas": ["r0", "r1"],
    },
)
def plan(asked: PlanInput) -> object:
    """One tick of a pool's planner: which prefixes are warmed where, by worth per token and within the budget."""
    defaults = PolicyDefaults(
        plan=PlanPolicy(min_saved_ms=asked.min_saved_ms, copies=asked.copies),
        budget=BudgetPolicy(prefill_share=asked.prefill_share, prefill_tokens_per_s=asked.prefill_tokens_per_s),
        experiment=ExperimentPolicy(hold_share=asked.hold_share),
    )
    book, planner = PolicyBook(defaults), planner_of(PlanConfig(), POOL, MemoryMapStore())
    names = {h128(prefix.name): prefix.name for prefix in asked.prefixes}
    found = Candidates(
        "default", POOL, asked.at_ms, (Root("m", "", "", "", ""),), tuple(map(_candidate, asked.prefixes))
    )
    out = planner.on_envelope(seal(Tag.CANDIDATES, POOL, found), asked.at_ms, asked.at_ms, book)
    tick_ms = planner.next_timer_ms or asked.at_ms
    for name in asked.replicas:
        sample = ReplicaSample(
            replica=name,
            pool=POOL,
            incarnation="1",
            sampled_at_ms=tick_ms,
            state="ready",
            block_tokens=asked.block_tokens,
        )
        out += planner.on_envelope(seal(Tag.CONTROL, POOL, encode(sample)), asked.at_ms, asked.at_ms, book)
    out += planner.on_timer(tick_ms, tick_ms, book)
    commands = [
        msgspec.json.decode(body_of(envelope), type=WarmupCommand)
        for envelope in out
        if tag_of(envelope) == Tag.COMMAND
    ]
    return {"commands": [{"name": names[_last_hash(command)], **_shown(command)} for command in commands]}


def _candidate(prefix: HotPrefix) -> Candidate:
    digest = h128(prefix.name)
    return Candidate(
        0,
        bytes.fromhex(digest),
        (prefix.tokens,),
        b"\0",
        digest,
        prefix.rate_per_s,
        prefix.p_asked,
        prefix.rate_per_s,
        0,
    )


def _last_hash(command: WarmupCommand) -> str:
    return command.target_key.rpartition(":")[2]


def _shown(command: WarmupCommand) -> dict[str, object]:
    return {
        "replicas": command.replicas.names,
        "priority": command.priority,
        "arm": command.arm,
        "cost": command.cost,
        "benefit": command.benefit,
        "evidence": command.reason.evidence,
        "expires_at_ms": command.expires_at_ms,
    }


class ExperimentInput(Input, frozen=True, kw_only=True):
    """A unit of the hold-out and when it is looked at."""

    unit: str
    at_ms: Ms
    hold_share: Share = ExperimentPolicy().hold_share
    salt: str = ExperimentPolicy().salt


@rule("experiment", "D17", {"unit": "adapter-7@2026-11-30", "at_ms": 1_796_000_000_000, "hold_share": 0.5})
def experiment(asked: ExperimentInput) -> object:
    """The arm of a unit in its period, and the probability with which it got it."""
    found = experiments.assign(asked.unit, asked.at_ms, ExperimentPolicy(hold_share=asked.hold_share, salt=asked.salt))
    return {"arm": found.arm, "propensity": found.propensity, "period": experiments.period_of(asked.at_ms)}
