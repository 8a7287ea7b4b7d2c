"""What warm-ups may spend, whose share it is, and who is held out."""

from __future__ import annotations

from dataclasses import dataclass

from analytics.knobs import knob


@dataclass(frozen=True)
class BudgetPolicy:
    """Section `budget`: what warm-ups may spend, per pool."""

    prefill_share: float = knob(0.01, "Share of every replica's prefill that warm-ups may use.", low=0, high=1)
    cold_start_share: float = knob(
        0.05,
        "The same of a replica that came a minute ago or less, beside others that did not; 0 as of any other. "
        "A pool's budget at most doubles by it.",
        low=0,
        high=1,
    )
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
