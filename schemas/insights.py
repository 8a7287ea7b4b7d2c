"""Insights: what the jobs saw (topic warmup.insights): WindowStats, Accounting and Focus."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from schemas.fields import Amount, Count, Id, Ms, Name

Dimension = Literal["query", "template", "adapter", "prefix_family", "cluster"]
Verdict = Literal["crowd", "crawler", "none"]


class TopKey(Struct, frozen=True):
    """One of the heaviest keys of a pane."""

    key: Id
    count: Count
    users: Count


class WindowStats(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag="window_stats/1"):
    """Totals of one scope, dimension and shard in one pane. The reader takes the greatest revision.

    Entropy merges exactly over shards: H = ln W − ΣS / W nats, with S = Σ c ln c (`sum_clogc`) over a shard's keys;
    weights below 1 make S negative. `capped` says that a bound on memory made the totals inexact.
    """

    scope: Id
    dimension: Dimension
    shard: Annotated[int, Meta(ge=0, le=65_535)]
    pane_start_ms: Ms
    revision: Count
    at_ms: Ms
    events: Count
    weight: Amount
    sum_clogc: Annotated[float, Meta(ge=-1e18, le=1e18)]
    distinct: Count
    users: Count
    top: tuple[TopKey, ...] = ()
    capped: bool = False

    @property
    def event_time_ms(self) -> int:
        """The slide that it was published at."""
        return self.at_ms


class Accounting(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag="accounting/1"):
    """Where every record of llm.requests went, cumulative in one shard since the state began.

    The reader takes the latest of each shard. Over all shards
    read = counted + second_phase + not_demand + late + duplicate + dead (tombstones apart).
    `counted` is also the sum of `events` over the panes of dimension query: two counts that must agree.
    """

    shard: Annotated[int, Meta(ge=0, le=65_535)]
    revision: Count
    at_ms: Ms
    counted: Count = 0
    second_phase: Count = 0
    not_demand: Count = 0
    late: Count = 0
    duplicate: Count = 0
    dead: Count = 0

    @property
    def event_time_ms(self) -> int:
        """The slide that it was published at."""
        return self.at_ms


class KeyRate(Struct, frozen=True):
    """A key of the focus and its rate."""

    key: Id
    qps: Amount


class Focus(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag="focus/1"):
    """A crowd has gathered, or seems to have. Entropies in bits."""

    scope: Id
    dimension: Dimension
    rule: Name
    at_ms: Ms
    entropy_bits: Amount
    baseline_bits: Amount
    user_entropy_bits: Amount | None = None
    qps: Amount
    keys: tuple[KeyRate, ...] = ()
    verdict: Verdict
    evidence: dict[str, float] = {}

    @property
    def event_time_ms(self) -> int:
        """The end of the window that showed it."""
        return self.at_ms


class PlannerState(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag="planner_state/1"):
    """What a pool's planner is doing, once per slide: `catching_up` means that it holds its commands back."""

    pool: Id
    at_ms: Ms
    state: Literal["planning", "catching_up", "frozen"]
    lag_ms: Amount = 0.0
    candidates: Count = 0
    issued: Count = 0
    suppressed: Count = 0
    evidence: dict[str, float] = {}

    @property
    def event_time_ms(self) -> int:
        """The tick that it was published at."""
        return self.at_ms
