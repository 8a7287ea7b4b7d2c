"""Settings of a pool's planner that hold for the life of a job; what may change while it runs is in `policy`."""

from __future__ import annotations

from dataclasses import dataclass

from analytics.knobs import knob
from analytics.own_policy import OwnPolicy
from analytics.timescale import scaled


@dataclass(frozen=True)
class PlanConfig:
    """Settings of a planner. Durations are unscaled; `time_scale` shortens them together, unless said otherwise.

    Attributes:
        own: the deployment's own rank of what a tick may take, if it has one.
    """

    tick_ms: int = knob(
        1_000, "How often the planner plans; at least 100 ms when scaled.", unit="ms", low=100, high=60_000
    )
    pane_ms: int = knob(
        10_000, "Length of a pane of the demand operators; six are a minute.", unit="ms", low=100, high=60_000
    )
    candidates_life_ms: int = knob(
        60_000, "Hot prefixes that nobody confirmed for so long are dropped.", unit="ms", low=1000, high=3_600_000
    )
    horizon_ms: int = knob(
        120_000, "How far ahead the chance of being asked for looks.", unit="ms", low=1000, high=3_600_000
    )
    half_life_ms: int = knob(
        300_000,
        "Time after which the traffic of a replica counts half, for what its cache keeps; that of hotness.",
        unit="ms",
        low=1000,
        high=86_400_000,
    )
    absent_rule: str = knob(
        "tuned",
        "How long replicas keep what nobody asks for: `spec` as policy says, `tuned` by their capacity and traffic "
        "where they tell them, and by what warm-ups found.",
        choices=("spec", "tuned"),
    )
    renew_rule: str = knob(
        "spec",
        "Whether a warm-up of a prefix that is resident has a value: `spec` none, `tuned` as far as it is kept by that "
        "for a request and what it displaces is asked for less often. Needs replicas that tell capacity and traffic.",
        choices=("spec", "tuned"),
    )
    rewarm_pause_ms: int = knob(
        10_000, "A lost prefix is warmed again at most once in such a time.", unit="ms", low=0, high=3_600_000
    )
    longest_rest_ms: int = knob(
        3_600_000,
        "A target without content is commanded ever more rarely, at last once in such a time.",
        unit="ms",
        low=1000,
        high=86_400_000,
    )
    min_life_ms: int = knob(
        15_000,
        "No command lives shorter than this, however event time is scaled: executors live in real time.",
        unit="ms",
        low=100,
        high=600_000,
    )
    stale_ms: int = knob(
        10_000,
        "A replica without a sample for so long is not warmed; not scaled, as samples come in real seconds.",
        unit="ms",
        low=1000,
        high=600_000,
    )
    embed_saved_ms: float = knob(
        10.0, "What an embedding that lies ready saves; shortened by time_scale.", unit="ms", low=0, high=60_000
    )
    response_saved_ms: float = knob(
        1_000.0, "What a response that lies ready saves; shortened by time_scale.", unit="ms", low=0, high=600_000
    )
    response_cache: str = knob("answers", "Name of the semantic cache of each scope that responses go to.")
    reward_life_ms: int = knob(
        3_600_000,
        "What a query earned is forgotten so long after its last reward, and its answers with it.",
        unit="ms",
        low=1000,
        high=604_800_000,
    )
    max_judged: int = knob(
        100_000, "Judged queries that a planner remembers.", unit="queries", low=100, high=10_000_000
    )
    max_commands: int = knob(500, "Commands that a tick may issue.", unit="commands", low=1, high=100_000)
    max_targets: int = knob(200_000, "Targets that a planner remembers.", unit="targets", low=100, high=10_000_000)
    max_known: int = knob(
        100_000, "Embedded queries that a planner remembers.", unit="queries", low=100, high=10_000_000
    )
    reference_replicas: int = knob(
        4, "Ready replicas for which a focus names just `focus.keys` keys.", unit="replicas", low=1, high=10_000
    )
    settle_ms: int = knob(
        0, "How long after the end of a slide its totals may still arrive.", unit="ms", low=0, high=60_000
    )
    redis_pool: str = knob(
        "",
        "The Redis pool whose planner sees the queries of all pools; empty: each pool looks for focus on its own.",
    )
    adapter_rule: str = knob(
        "tuned",
        "Which adapter leaves a full replica first: by `spec`, the longest unused, or what would have saved most.",
        choices=("spec", "lru", "tuned"),
    )
    time_scale: float = knob(1.0, "How much faster than the calendar event time runs.", low=0.01, high=10_000)
    own: OwnPolicy | None = None

    def scaled(self, duration_ms: float) -> int:
        """A duration as it passes under the time scale."""
        return scaled(duration_ms, self.time_scale)

    @property
    def scaled_tick_ms(self) -> int:
        """The tick as it passes."""
        return max(100, self.scaled(self.tick_ms))

    @property
    def scaled_pane_ms(self) -> int:
        """The pane as it passes; the planner reports its state once in each."""
        return self.scaled(self.pane_ms)

    @property
    def scaled_settle_ms(self) -> int:
        """What `settle_ms` is under the time scale."""
        return self.scaled(self.settle_ms) if self.settle_ms else 0

    def life_ms(self, policy_life_ms: int) -> int:
        """Life of a command whose policy says so much."""
        return max(self.min_life_ms, self.scaled(policy_life_ms))
