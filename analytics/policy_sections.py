"""The sections of a policy: what each key means, its unit, range and default.

Durations are given in unscaled event time; what applies them divides by `time_scale`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analytics.knobs import knob


@dataclass(frozen=True)
class FocusPolicy:
    """Section `focus`: when a crowd has gathered (D2)."""

    enabled: bool = knob(True, "Whether focus is looked for at all.")
    rule: str = knob(
        "tuned",
        "tuned: who asks, by share and rate, once a pane; spec: entropies of minutes, with the keys below but boost.",
        choices=("spec", "tuned"),
    )
    entropy_max_bits: float = knob(2.1, "Below this entropy a minute counts as focused.", unit="bits", low=0, high=32)
    fall_share: float = knob(0.15, "entropy_only: by how much entropy must fall, twice running.", low=0, high=1)
    fall_bits: float = knob(
        0.08, "should_preheat: by how much entropy must fall a minute, on average.", unit="bits/min", low=0, high=32
    )
    keys: int = knob(50, "How many of the hottest keys a focus names.", unit="keys", low=1, high=1000)
    boost: float = knob(
        2.0, "Factor on the demand of embeddings, adapters and prefixes that a focus names.", low=1, high=100
    )

    @property
    def tuned(self) -> bool:
        """Whether the demand shards tell who asked for what."""
        return self.enabled and self.rule == "tuned"


@dataclass(frozen=True)
class ScorePolicy:
    """Section `score`: the dynamic score of a query (D6)."""

    rule: str = knob(
        "spec",
        "spec: rewards count by their mean; tuned: by a posterior with weights by source and a prior from the cluster: "
        "an answer is served by its lower bound, and `judgements` is not asked for.",
        choices=("spec", "tuned"),
    )
    decay_ms: int = knob(
        300_000,
        "Time after which an arrival counts 1/e.",
        unit="ms",
        low=1000,
        high=86_400_000,
    )
    queue: int = knob(1000, "How many queries a scope's queue keeps.", unit="queries", low=1, high=100_000)
    sort_ms: int = knob(30_000, "How often the queue is sorted again.", unit="ms", low=1000, high=3_600_000)
    drop_below: float = knob(0.25, "A score below this leaves the queue.", low=0, high=1)
    alpha: float = knob(0.7, "Weight of the reward in the score of a query that was judged.", low=0, high=1)
    alpha_ecommerce: float = knob(0.85, "The same where the request's domain is e-commerce.", low=0, high=1)
    alpha_news: float = knob(0.6, "The same where the request's domain is news.", low=0, high=1)
    reward_floor: float = knob(
        0.5, "An answer whose mean reward is below this is not served again, and taken back if it was.", low=0, high=1
    )
    judgements: int = knob(
        1, "How many rewards an answer needs before its mean counts, either way.", unit="rewards", low=1, high=1000
    )
    answer_score: float = knob(
        0.5, "An answer that scores below this, by its own reward, is not put into the response cache.", low=0, high=1
    )


@dataclass(frozen=True)
class PlanPolicy:
    """Section `plan`: what may be warmed, for how long a command lives, what is worth it (D15)."""

    prefixes: bool = knob(True, "Whether KV prefixes are warmed.")
    embeddings: bool = knob(True, "Whether embeddings are warmed from the queue of hot queries.")
    responses: bool = knob(True, "Whether well rewarded answers are put into the response cache.")
    second_sight: bool = knob(True, "Whether a query's second sight is embedded and warmed at once.")
    first_sight_share: float = knob(
        0.0,
        "Share of queries, by hash, whose first sight is embedded for clusters, as far as half of the embeds goes.",
        low=0,
        high=1,
    )
    rewarm: bool = knob(True, "Whether a hot prefix that a replica lost is warmed again at once.")
    clusters: bool = knob(True, "Whether members of a massive or growing cluster of queries are warmed.")
    cluster_mass: float = knob(
        30.0, "From so many requests in five minutes a cluster is massive.", unit="requests", low=0, high=1e9
    )
    cluster_growth: float = knob(
        0.5, "A cluster whose mass rises by this share in a stride is growing.", low=0, high=1e9
    )
    cluster_growing_mass: float = knob(
        10.0, "With fewer requests no cluster counts as growing.", unit="requests", low=0, high=1e9
    )
    lost_share: float = knob(
        0.25, "A prefix that lost more than this share of its tokens on a replica counts as lost there.", low=0, high=1
    )
    shadow: bool = knob(False, "Commands are sent as shadow: executors record them and apply nothing.")
    qos: str = knob(
        "burstable",
        "Class of this scope's commands under pressure.",
        choices=("guaranteed", "burstable", "best_effort"),
    )
    prefix_repeat_ms: int = knob(
        60_000, "A prefix is commanded at most once per such interval.", unit="ms", low=1000, high=86_400_000
    )
    embedding_repeat_ms: int = knob(
        3_600_000, "An embedding is commanded at most once per such interval.", unit="ms", low=1000, high=86_400_000
    )
    response_repeat_ms: int = knob(
        600_000, "A response is commanded at most once per such interval.", unit="ms", low=1000, high=86_400_000
    )
    prefix_life_ms: int = knob(
        30_000, "A prefix command expires this long after it was issued.", unit="ms", low=1000, high=3_600_000
    )
    embedding_life_ms: int = knob(
        120_000, "An embedding command expires this long after it was issued.", unit="ms", low=1000, high=3_600_000
    )
    response_life_ms: int = knob(
        120_000, "A response command expires this long after it was issued.", unit="ms", low=1000, high=3_600_000
    )
    prefix_resident_ms: int = knob(
        120_000,
        "How long a warmed prefix is taken as resident when nothing else is heard of it.",
        unit="ms",
        low=1000,
        high=86_400_000,
    )
    embedding_resident_ms: int = knob(
        3_600_000, "How long a warmed embedding is taken as resident.", unit="ms", low=1000, high=604_800_000
    )
    response_resident_ms: int = knob(
        1_800_000,
        "How long a response may be served from the cache: its absolute end, counted from the command.",
        unit="ms",
        low=1000,
        high=604_800_000,
    )
    lead_ms: int = knob(
        5_000, "How long before its residency ends a target may be warmed again.", unit="ms", low=0, high=600_000
    )
    copies: int = knob(1_000, "On how many replicas a prefix is warmed, at most.", unit="replicas", low=1, high=10_000)
    min_saved_ms: float = knob(
        1.0,
        "A prefix whose expected saving is below this is left; shortened by time_scale.",
        unit="ms",
        low=0,
        high=60_000,
    )


@dataclass(frozen=True)
class BudgetPolicy:
    """Section `budget`: what warm-ups may spend, per pool."""

    prefill_share: float = knob(0.01, "Share of every replica's prefill that warm-ups may use.", low=0, high=1)
    prefill_tokens_per_s: float = knob(
        20_000.0,
        "What one replica prefills; time_scale multiplies it, as it shortens the prefill.",
        unit="tokens/s",
        low=1,
        high=1e9,
    )
    burst_ms: int = knob(30_000, "How long an unused budget is saved up.", unit="ms", low=1000, high=3_600_000)
    embeddings_per_s: float = knob(200.0, "Embedding commands a pool issues.", unit="commands/s", low=0, high=1e6)
    embeds_per_s: float = knob(50.0, "Queries that the job embeds in a scope.", unit="queries/s", low=0, high=1e6)
    embeds_burst: float = knob(100.0, "How many embeds may come at once.", unit="queries", low=1, high=1e6)
    adapter_loads_per_s: float = knob(0.5, "Adapter commands a pool issues.", unit="commands/s", low=0, high=1e4)
    adapter_slots: int = knob(
        0,
        "Adapters that a replica holds at once; 0: not known, then none is unloaded.",
        unit="slots",
        low=0,
        high=10_000,
    )


@dataclass(frozen=True)
class QuotaPolicy:
    """Section `quota`: the static share of a scope in every pool."""

    share: float = knob(
        -1.0,
        "Share of each budget that belongs to this scope; -1 means an equal part of what no other scope has named.",
        low=-1,
        high=1,
    )


@dataclass(frozen=True)
class ExperimentPolicy:
    """Section `experiment`: the hold-out (D17)."""

    hold_share: float = knob(0.1, "Share of units that are never warmed in their period.", low=0, high=1)
    salt: str = knob("stoker", "Start of the salt; the period (the day of event time) is put behind it.")


@dataclass(frozen=True)
class SchedulePolicy:
    """Section `schedule`: how announced changes and events are prepared (D14)."""

    lead_ms: int = knob(
        3_600_000, "How long before an event its values are fetched.", unit="ms", low=0, high=86_400_000
    )
    prefix_lead_ms: int = knob(
        30_000, "How long before a prompt or model takes effect it is warmed.", unit="ms", low=0, high=3_600_000
    )
    adapter_lead_ms: int = knob(
        60_000, "How long before an adapter's version takes effect it is loaded.", unit="ms", low=0, high=3_600_000
    )
    top: int = knob(1_000, "How many keys of an event are fetched; the rest comes lazily.", unit="keys", high=10_000)
    first: int = knob(100, "How many of them at once.", unit="keys", high=10_000)
    in_flight: int = knob(32, "How many of the first may be under way at a time.", unit="commands", high=10_000)
    batch: int = knob(50, "Size of the batches after the first.", unit="keys", high=10_000)
    pause_ms: int = knob(2_000, "Pause between two batches.", unit="ms", low=0, high=3_600_000)
    sample_share: float = knob(0.1, "Share of the keys that strategy `sampled` takes.", low=0, high=1)


@dataclass(frozen=True)
class PatternPolicy:
    """Section `pattern`: consecutive prompts of a session that resemble each other (D10)."""

    rule: str = knob(
        "tuned",
        "Priority of a pattern's command: `tuned` by its worth, `spec` by hash and rate.",
        choices=("tuned", "spec"),
    )
    enabled: bool = knob(
        True, "Whether such a session's prefix is warmed at once; `warmup.pattern_scopes` says whose are looked for."
    )


@dataclass(frozen=True)
class AdapterPolicy:
    """Section `adapter`: which LoRA adapters are loaded and which may go (D12)."""

    enabled: bool = knob(True, "Whether adapters in demand are loaded where they are absent.")
    priority: float = knob(
        -1.0, "Priority of this scope's adapters, 0 to 1; -1: 1, 0.8 or 0.5 by `plan.qos`.", low=-1, high=1
    )
    unload: bool = knob(False, "Whether an adapter that need not stay is unloaded where slots are short.")
    prefetch: bool = knob(
        False,
        "Whether this scope's habits are learned and its adapters loaded ahead, where `budget.adapter_slots` is told.",
    )
    repeat_ms: int = knob(
        300_000, "An adapter is commanded at most once per such interval.", unit="ms", low=1000, high=86_400_000
    )
    life_ms: int = knob(
        60_000, "An adapter command expires this long after it was issued.", unit="ms", low=1000, high=3_600_000
    )
    resident_ms: int = knob(
        300_000,
        "How long a loaded adapter is taken as resident on a replica that lists none.",
        unit="ms",
        low=1000,
        high=86_400_000,
    )
    load_ms: float = knob(
        4_400.0,
        "What a load costs the request that waits for it; shortened by time_scale.",
        unit="ms",
        low=0,
        high=3.6e6,
    )


@dataclass(frozen=True)
class PromptPolicy:
    """Section `prompt`: managed prompts that are warmed by their hotness (D7, spec)."""

    enabled: bool = knob(True, "Whether prefixes of managed prompts are warmed.")
    top: int = knob(20, "Among how many of the hottest prompts a draw is made.", unit="prompts", low=1, high=1000)
    draws: int = knob(4, "How many draws a scope makes in each interval of `plan.prefix_repeat_ms`.", low=0, high=100)
    ceiling: float = knob(10.0, "The hotness that no prompt exceeds.", low=1, high=1e6)


@dataclass(frozen=True)
class BreakerPolicy:
    """Section `breaker`: when warming a replica would do harm (D16). A replica's breaker is ruled by scope `*`."""

    enabled: bool = knob(True, "Whether executors hold warm-ups back from a replica that they would harm.")
    rule: str = knob(
        "tuned",
        "tuned: what the specification's rules say of usage, and what warm-ups displaced and slowed; spec: those rules "
        "alone.",
        choices=("spec", "tuned"),
    )
    spec: str = knob(
        "either",
        "Rule spec: usage with allocations (`code`), bands of usage (`table`), or `either`.",
        choices=("either", "code", "table"),
    )
    usage: float = knob(0.85, "Share of KV blocks held by running requests above which it breaks.", low=0, high=1)
    preheat_usage: float = knob(0.70, "The same of `code` while warm-ups run.", low=0, high=1)
    allocations: float = knob(
        1_200.0, "`code` breaks only above so many allocations.", unit="blocks/s", low=0, high=1e9
    )
    busy_usage: float = knob(0.60, "Usage from which warm-ups give way to waiting requests.", low=0, high=1)
    busy_p99_ms: float = knob(
        200.0, "`table`: budget of first tokens from that usage on.", unit="ms", low=0, high=3_600_000
    )
    idle_p99_ms: float = knob(120.0, "`table`: budget of first tokens below it.", unit="ms", low=0, high=3_600_000)
    own_share: float = knob(
        0.2,
        "No harm is put down to warm-ups that stored less than this share of all blocks, or for users' figures "
        "computed less than this share of all prompt tokens.",
        low=0,
        high=1,
    )
    displaced_share: float = knob(
        0.5,
        "Share of the replica's blocks that may leave for warm-ups in a minute; halved each time that it did harm.",
        low=0,
        high=1e3,
    )
    regret_share: float = knob(
        0.02,
        "Share of the replica's blocks that may come back soon after they had to leave before it breaks.",
        low=0,
        high=1,
    )
    regret_ms: int = knob(
        60_000, "How soon that is; also how long a warmed prefix should stay.", unit="ms", low=1000, high=3_600_000
    )
    idle_ms: int = knob(
        10_000,
        "It breaks where blocks leave that were idle for less than this; 0 never.",
        unit="ms",
        low=0,
        high=3_600_000,
    )
    lost_share: float = knob(
        0.25, "Share of what was warmed in the last `regret_ms` that may be gone when it is asked again.", low=0, high=1
    )
    ttft_factor: float = knob(
        1.5,
        "It breaks where users' first tokens take so many times as long as without warm-ups (p95).",
        low=1,
        high=1e3,
    )
    hit_points: float = knob(
        0.05, "It breaks where the share of users' tokens found cached falls by this, beyond chance.", low=0, high=1
    )
    open_ms: int = knob(
        5_000, "How long it stays open; doubled each time that it opens again.", unit="ms", low=100, high=3_600_000
    )
    open_max_ms: int = knob(300_000, "The longest that it stays open.", unit="ms", low=100, high=86_400_000)
    judge_ms: int = knob(
        2_000, "How long after its one probe it waits before it closes.", unit="ms", low=0, high=3_600_000
    )
    psi_high: float = knob(
        0.10,
        "Share of time that tasks of the host wait for memory from which warm-ups give way.",
        low=0,
        high=1,
    )
    psi_low: float = knob(0.05, "Below this they get a step back.", low=0, high=1)
    psi_up_ms: int = knob(1_000, "Shortest pause between two steps down.", unit="ms", low=0, high=3_600_000)
    psi_down_ms: int = knob(10_000, "How long it must be calm for a step back.", unit="ms", low=0, high=3_600_000)


@dataclass(frozen=True)
class FreezePolicy:
    """Section `freeze`: a writer's brake. A scope is frozen while any writer says so."""

    frozen: bool = knob(True, "Whether this writer freezes the scope.")
    reason: str = knob("", "Why, for people.")


@dataclass(frozen=True)
class PolicyDefaults:
    """What holds where no Policy says otherwise."""

    focus: FocusPolicy = FocusPolicy()
    score: ScorePolicy = ScorePolicy()
    plan: PlanPolicy = PlanPolicy()
    budget: BudgetPolicy = BudgetPolicy()
    quota: QuotaPolicy = QuotaPolicy()
    experiment: ExperimentPolicy = ExperimentPolicy()
    schedule: SchedulePolicy = SchedulePolicy()
    pattern: PatternPolicy = PatternPolicy()
    adapter: AdapterPolicy = AdapterPolicy()
    prompt: PromptPolicy = PromptPolicy()
    breaker: BreakerPolicy = BreakerPolicy()


SECTIONS: Mapping[str, Any] = {
    "focus": FocusPolicy,
    "score": ScorePolicy,
    "plan": PlanPolicy,
    "budget": BudgetPolicy,
    "quota": QuotaPolicy,
    "experiment": ExperimentPolicy,
    "schedule": SchedulePolicy,
    "pattern": PatternPolicy,
    "adapter": AdapterPolicy,
    "prompt": PromptPolicy,
    "breaker": BreakerPolicy,
    "freeze": FreezePolicy,
}
"""The sections that this version reads, and their keys. Others are kept, and none of their keys is known."""
