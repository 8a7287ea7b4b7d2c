"""What may be warmed, for how long, and what is worth it."""

from __future__ import annotations

from dataclasses import dataclass

from analytics.knobs import knob


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
