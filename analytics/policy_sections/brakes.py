"""What holds warm-ups back: a replica's breaker and a writer's freeze."""

from __future__ import annotations

from dataclasses import dataclass

from analytics.knobs import knob


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
