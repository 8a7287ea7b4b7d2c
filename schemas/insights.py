"""Insights: what the jobs saw (topic warmup.insights)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from schemas.fields import Amount, Count, Hash, Id, Ms, Name, Share

Dimension = Literal["query", "template", "adapter", "prefix_family", "cluster", "value"]
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


class Cluster(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag="cluster/1"):
    """A group of like queries in a scope's window, once per stride while it lives.

    Attributes:
        cluster_id: kept while the group goes on; never reused.
        rule: which clustering found it. `eps` is its radius in cosine distance for this encoder's `fingerprint`.
        medoid: the member nearest to all others; `members` the heaviest ones with it, `size` how many there are.
        mass: weight of all members; `growth` its change since the last stride, as a share.
    """

    scope: Id
    cluster_id: Id
    rule: Name
    fingerprint: Hash
    eps: Amount
    at_ms: Ms
    medoid: Hash
    members: tuple[Hash, ...] = ()
    size: Count
    mass: Amount
    growth: Annotated[float, Meta(ge=-1, le=1e9)] = 0.0
    largest_share: Share = 0.0
    evidence: dict[str, float] = {}

    @property
    def event_time_ms(self) -> int:
        """The stride that it was seen at."""
        return self.at_ms


class Score(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag="score/1"):
    """The dynamic score of a query after a reward: α · reward + (1 − α) · demand (D6).

    `reward_at_ms` is the judgement that changed it, so that a reader can see how long that took.
    """

    scope: Id
    query_sha256: Hash
    rule: Name
    at_ms: Ms
    reward_at_ms: Ms
    score: Share
    reward: Share
    demand: Share
    alpha: Share
    rewards: Count = 1

    @property
    def event_time_ms(self) -> int:
        """When it was computed, in event time."""
        return self.at_ms


class Pattern(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag="pattern/1"):
    """Consecutive requests of a session that resemble each other, an adapter asked for often, or like requests (D10).

    Attributes:
        pattern: `consecutive_prompts`, `adapter_rate`, or `request_group`: requests alike in length, authors, model and
            latency, once a slide while there are such.
        subject: the session's hash, the adapter, or model and number of the group.
        priority: of the spec's formula, as it came out, before it is clamped for the command.
    """

    scope: Id
    pool: Id
    pattern: Literal["consecutive_prompts", "adapter_rate", "request_group"]
    subject: Id
    at_ms: Ms
    priority: Count = 0
    state: Annotated[int, Meta(ge=0, le=999)] = 0
    evidence: dict[str, float] = {}

    @property
    def event_time_ms(self) -> int:
        """The request that completed it."""
        return self.at_ms


class Alternative(Struct, frozen=True):
    """A warm-up that would have been worth it, and that its scope could not pay beside what it got in the same tick.

    Attributes:
        rank: by which the planner orders what it may take; more is sooner.
        worth_density: expected milliseconds saved per unit of cost. cost: of all copies, in the unit of the budget.
    """

    scope: Id
    target_key: Id
    trigger: Name
    rank: Amount
    worth_density: Amount
    cost: Amount


class PlannerState(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag="planner_state/1"):
    """What a pool's planner is doing, once per slide: `catching_up` means that it holds its commands back.

    A tick that took something and left something of the same scope out says so too, in between: `left_out` has the best
    of that, a few of each scope, and holds for the tick at `at_ms` only. `issued` counts since the last one.
    """

    pool: Id
    at_ms: Ms
    state: Literal["planning", "catching_up", "frozen"]
    lag_ms: Amount = 0.0
    candidates: Count = 0
    issued: Count = 0
    suppressed: Count = 0
    evidence: dict[str, float] = {}
    left_out: tuple[Alternative, ...] = ()

    @property
    def event_time_ms(self) -> int:
        """The tick that it was published at."""
        return self.at_ms


class PrefixState(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag="prefix_state/1"):
    """How fast the hotness of a scope's prefixes in a pool fades, whenever that changes (D11).

    Attributes:
        rule: `tuned`: half_life_ms is factor × median_gap_ms within its bounds; `spec`: it is fixed.
        gaps: how many gaps between two uses the median is over.
        nodes, ghosts: segments held, and segments that left and are remembered.
    """

    scope: Id
    pool: Id
    rule: Name
    at_ms: Ms
    half_life_ms: Amount
    median_gap_ms: Amount | None = None
    factor: Amount | None = None
    gaps: Amount = 0.0
    nodes: Count = 0
    ghosts: Count = 0

    @property
    def event_time_ms(self) -> int:
        """The slide from whose end on it holds."""
        return self.at_ms
