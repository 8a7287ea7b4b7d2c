"""What has rules of its own: announced changes and events, adapters, managed prompts."""

from __future__ import annotations

from dataclasses import dataclass

from analytics.knobs import knob


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
