"""Backtest `lora`: which adapters of the LoRA trace are resident when they are asked for (D12).

Judged are the uses from JUDGED_FROM on. What came before is where the predictor was built and looked at, and what every
cache and habit has seen when the judging begins; parameters are from theory (algorithms.md §3, D12) or from there. A
miss is compulsory when the trace never asked for the adapter before: nothing here could name it, so that the bound of
`load_seconds_hidden` is what all other misses cost. A load takes 4.4 s, and what is asked for while it is being loaded
ahead waits for the rest of it. Tenants have no classes in the trace: all are of policy's default one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analytics.adapter_classes import CLASS_OF_QOS
from analytics.adapter_history import AdapterHistory
from analytics.adapter_prefetch import AdapterPrefetch, PrefetchConfig
from analytics.adapter_residency import RULES, ResidencyConfig, RuleName, TunedResidency
from analytics.adapter_slots import AdapterSlots
from analytics.adapters import PRIORITY_OF_CLASS
from analytics.policy_sections import PlanPolicy
from analytics.records import Section
from analytics.stores import MemoryMapStore
from stoker.backtests.data import data_file
from stoker.backtests.lora_trace import LOAD_MS, TRACE, Asked, Use, belady, read_lora_trace
from stoker.bench.figures import Figure, Report, at_least, at_most

JUDGED_FROM_MS = 1_732_579_200_000
"""2024-11-26, 00:00: the second half of the uses."""
SLOTS = (8, 16, 32)
PREFETCH_SLOTS = 16
LOWER_BARS = (0.1, 0.2, 0.3)
QOS = PlanPolicy().qos


@dataclass(frozen=True)
class Played:
    """What came of each use, in order.

    Attributes:
        hits: it was there, if need be still on its way.
        waited_ms: for its load.
        sent, useful: loads ahead in the judged part, and those that a use found.
    """

    hits: tuple[bool, ...]
    waited_ms: tuple[int, ...]
    sent: int = 0
    useful: int = 0


def run() -> Report:
    """Hit rates of all rules at all slots; at 16 what loading ahead brings, and what it would at lower bars."""
    requests = read_lora_trace(data_file(TRACE))
    uses = [Use(asked.at_ms, adapter) for asked in requests for adapter in asked.adapters]
    judged = slice(next(index for index, use in enumerate(uses) if use.at_ms >= JUDGED_FROM_MS), None)
    report = Report("lora")
    report.add(Figure("judged_uses", len(uses[judged]), "uses"))
    report.add(Figure("compulsory_misses", share(first(uses)[judged]), "of uses"))
    for slots in SLOTS:
        lru = played(requests, slots, ("lru",), None)
        alone = played(requests, slots, RULES, None)
        stoker = played(requests, slots, RULES, PrefetchConfig())
        base = share(lru.hits[judged])
        report.add(Figure(f"hit_rate.lru.{slots}", base))
        report.add(Figure(f"hit_rate.lru2.{slots}", share(lru2(uses, slots)[judged]), baseline=base))
        spec = played(requests, slots, ("spec",), None)
        report.add(Figure(f"hit_rate.spec.{slots}", share(spec.hits[judged]), baseline=base))
        report.add(Figure(f"hit_rate.residency.{slots}", share(alone.hits[judged]), baseline=base))
        never_below = at_least(1.0, of="ratio")
        report.add(Figure(f"hit_rate.stoker.{slots}", share(stoker.hits[judged]), baseline=base, goal=never_below))
        report.add(Figure(f"hit_rate.belady.{slots}", share(belady(uses, slots)[judged]), baseline=base))
        if slots == PREFETCH_SLOTS:
            _prefetch(report, uses, judged, lru, alone, stoker)
    alone = played(requests, PREFETCH_SLOTS, RULES, None)
    for bar in LOWER_BARS:
        lower = played(requests, PREFETCH_SLOTS, RULES, PrefetchConfig(bar=bar))
        report.add(Figure(f"prefetch_accuracy.bar_{bar:g}", lower.useful / lower.sent if lower.sent else 0.0))
        report.add(Figure(f"prefetch_coverage.bar_{bar:g}", coverage(uses, judged, alone, lower)))
        report.add(Figure(f"demand_hits_lost.bar_{bar:g}", lost(alone, lower, judged), "of uses"))
    return report


def _prefetch(report: Report, uses: Sequence[Use], judged: slice, lru: Played, alone: Played, stoker: Played) -> None:
    accuracy = stoker.useful / stoker.sent if stoker.sent else 0.0
    report.add(Figure("prefetch_sent", stoker.sent, "loads"))
    report.add(Figure("prefetch_accuracy", accuracy, goal=at_least(0.5)))
    report.add(Figure("prefetch_coverage", coverage(uses, judged, alone, stoker), goal=at_least(0.3)))
    report.add(Figure("demand_hits_lost", lost(alone, stoker, judged), "of uses", goal=at_most(0.01)))
    before_ms, after_ms = sum(lru.waited_ms[judged]), sum(stoker.waited_ms[judged])
    report.add(Figure("load_seconds_hidden", 1 - after_ms / before_ms, goal=at_least(0.5)))
    compulsory_ms = LOAD_MS * sum(first(uses)[judged])
    report.add(Figure("load_seconds_hidden.bound", 1 - compulsory_ms / before_ms))
    avoidable = 1 - (after_ms - compulsory_ms) / (before_ms - compulsory_ms)
    report.add(Figure("load_seconds_hidden.avoidable", avoidable))
    count = len(stoker.waited_ms[judged])
    report.add(Figure("mean_load_ms", after_ms / count, "ms", baseline=before_ms / count))


def played(
    requests: Sequence[Asked], slots: int, rules: tuple[RuleName, ...], prefetch: PrefetchConfig | None
) -> Played:
    """Plays the trace against one replica.

    Args:
        prefetch: None loads nothing ahead.
    """
    residency = TunedResidency(ResidencyConfig(slots, rules), MemoryMapStore())
    predictor = None if prefetch is None else AdapterPrefetch(prefetch, MemoryMapStore())
    of_class, priority = CLASS_OF_QOS[QOS], PRIORITY_OF_CLASS[QOS]
    hits, waited_ms = [], []
    loaded_ms: dict[str, int] = {}
    sent = useful = 0
    for at_ms, tenant, model, adapters in requests:
        counts = at_ms >= JUDGED_FROM_MS
        for adapter in adapters:
            step = residency.use(adapter, of_class, at_ms, priority, LOAD_MS)
            hits.append(step.hit)
            late_ms = max(0, LOAD_MS - (at_ms - loaded_ms.pop(adapter))) if step.expected else 0
            waited_ms.append(late_ms if step.hit else LOAD_MS)
            useful += counts and step.expected
        if predictor is None:
            continue
        for found in predictor.on_request(at_ms, tenant, model, adapters, residency.slots):
            if residency.expect(found.adapter, of_class, at_ms)[0]:
                loaded_ms[found.adapter] = at_ms
                sent += counts
    return Played(tuple(hits), tuple(waited_ms), sent, useful)


def lru2(uses: Sequence[Use], slots: int) -> list[bool]:
    """Which uses hit where the adapter with the oldest last but one use goes first (LRU-2), history kept."""
    history = AdapterHistory(Section(MemoryMapStore(), ""))
    cache = AdapterSlots(slots)

    def worth(adapter: str, touched_ms: int) -> tuple[float, ...]:
        known = history.of(adapter)
        return known.uses_ms[0] if known is not None and len(known.uses_ms) > 1 else -math.inf, touched_ms

    hits = []
    for at_ms, adapter in uses:
        hits.append(cache.use(adapter, "bronze", at_ms, worth).hit)
        history.add(adapter, "bronze", at_ms, 0.0)
    return hits


def first(uses: Sequence[Use]) -> list[bool]:
    """Which uses are an adapter's first."""
    seen: set[str] = set()
    return [not (use.adapter in seen or seen.add(use.adapter)) for use in uses]  # type: ignore[func-returns-value]


def coverage(uses: Sequence[Use], judged: slice, without: Played, with_: Played) -> float:
    """Part of the non-compulsory misses that hit where adapters were loaded ahead; `lost` tells what that cost."""
    missed = [
        after
        for before, after, new in zip(without.hits[judged], with_.hits[judged], first(uses)[judged], strict=True)
        if not before and not new
    ]
    return sum(missed) / len(missed) if missed else 0.0


def lost(without: Played, with_: Played, judged: slice) -> float:
    """Uses that hit only where nothing was loaded ahead, of all uses."""
    pairs = list(zip(without.hits[judged], with_.hits[judged], strict=True))
    return sum(one and not other for one, other in pairs) / len(pairs)


def share(hits: Sequence[bool]) -> float:
    """Part of uses that hit."""
    return sum(hits) / len(hits)
