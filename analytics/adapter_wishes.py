"""Which announced versions of adapters should be resident in a pool, and why (D10, D12)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from analytics.adapter_cache import AdapterCache, Tenure
from analytics.adapter_classes import CLASS_OF_QOS
from analytics.adapter_uses import AdapterUses
from analytics.adapter_versions import AdapterVersions, KnownRecord
from analytics.adapters import PRIORITY_OF_CLASS, should_keep
from analytics.crowds import TRIGGER_FOCUS, CrowdWatch
from analytics.minutes import PANES_PER_MINUTE
from analytics.patterns import Priority, adapter_rate, prefill_priority
from analytics.plan_config import PlanConfig
from analytics.policy import PolicyBook
from schemas.canonical import adapter_name

TRIGGER_ANNOUNCED = "announced"
TRIGGER_RATE = "adapter_rate"
TRIGGER_HOT = "adapter_hot"
TRIGGER_CLASS = "adapter_class"
TRIGGER_EXPECTED = "adapter_expected"
ANNOUNCED_PRIORITY = 900
LINGER_MS = 60_000
"""How long after its effect an announced version is still loaded without having been asked for. Scaled."""


@dataclass(frozen=True)
class Wish:
    """A version that should be resident.

    Attributes:
        p_asked: the chance that it is asked for within the horizon.
    """

    known: KnownRecord
    trigger: str
    priority: Priority
    p_asked: float
    evidence: dict[str, float]


class AdapterWishes:
    """What one pool wishes, out of what others know; it keeps nothing.

    A version is wished for when, in this order: a crowd gathers on it (D2); it was asked for five times in the last
    minute (D10); it is about to take effect; it is in use and stays by its priority; it is in use and its class gets
    less than it was promised; habits expect it (D12). A version that is replaced hands its uses on to the next one.
    """

    def __init__(
        self, config: PlanConfig, uses: AdapterUses, versions: AdapterVersions, cache: AdapterCache, crowds: CrowdWatch
    ) -> None:
        self._config = config
        self._uses = uses
        self._versions = versions
        self._cache = cache
        self._crowds = crowds

    def all(self, at_ms: int, policy: PolicyBook) -> list[Wish]:
        """Guaranteed scopes come first, then the higher priority."""
        return sorted(
            self._found(at_ms, policy),
            key=lambda wish: (
                -priority_of(wish.known.scope, policy),
                -wish.priority.raw,
                wish.known.announcement,
            ),
        )

    def _found(self, at_ms: int, policy: PolicyBook) -> Iterator[Wish]:
        for known in self._versions:
            scope = known.scope
            if policy.adapter(scope).enabled and not policy.frozen(scope) and self._versions.replaced_ms(known) > at_ms:
                wish = self._wish(known, at_ms, policy)
                if wish is not None:
                    yield wish

    def _wish(self, known: KnownRecord, at_ms: int, policy: PolicyBook) -> Wish | None:
        scope, names = known.scope, known.asked_as
        uses = sum(self._uses.in_minute(scope, name, at_ms) for name in names)
        in_use = uses > 0 and at_ms >= known.from_ms
        crowd = self._crowds.on(scope, "adapter", names, at_ms) if in_use else None
        lead_ms, linger_ms = policy.schedule(scope).adapter_lead_ms, LINGER_MS
        soon = -self._config.scaled(lead_ms) <= at_ms - known.from_ms < self._config.scaled(linger_ms)
        below = self._cache.below(CLASS_OF_QOS[policy.plan(scope).qos])
        waits = self._cache.expected(known.slot, at_ms)
        adapter_priority = priority_of(scope, policy)
        qps, boost, p_asked = self.qps(uses), 1.0, self._p_asked(uses)
        more: dict[str, float] = {}
        if crowd is not None:
            trigger, boost = TRIGGER_FOCUS, policy.focus(scope).boost
            more = {"boost": boost, **crowd}
        elif in_use and adapter_rate(uses):
            trigger = TRIGGER_RATE
        elif soon:
            trigger, p_asked = TRIGGER_ANNOUNCED, 1.0
            more = {"takes_effect_in_ms": float(known.from_ms - at_ms)}
        elif in_use and should_keep(self._uses.last_two_ms(scope, *names), adapter_priority):
            trigger = TRIGGER_HOT
        elif in_use and below is not None and self._cache.holds(known.slot):
            trigger = TRIGGER_CLASS
            more = {"class_hit_ratio": below.hit_ratio, "class_floor": below.floor, "class_slots": float(below.slots)}
        elif waits is not None:
            trigger, p_asked = TRIGGER_EXPECTED, waits.confidence
            more = {f"{waits.signal}_share": waits.share, "confidence": waits.confidence, "judged": waits.judged}
        else:
            return None
        priority = prefill_priority(adapter_name(known.name, known.version), qps * boost)
        if trigger == TRIGGER_ANNOUNCED:
            priority = Priority(priority.raw, max(priority.command, ANNOUNCED_PRIORITY))
        evidence = {
            "uses_in_minute": uses,
            "qps": qps,
            "priority_raw": float(priority.raw),
            "adapter_priority": adapter_priority,
        }
        return Wish(known, trigger, priority, p_asked, {**evidence, **more})

    def qps(self, uses_in_minute: float) -> float:
        """Uses of a minute as a rate."""
        return uses_in_minute * 1000 / (self._config.scaled_pane_ms * PANES_PER_MINUTE)

    def _p_asked(self, uses_in_minute: float) -> float:
        return -math.expm1(-self.qps(uses_in_minute) * self._config.scaled(self._config.horizon_ms) / 1000)


def priority_of(scope: str, policy: PolicyBook) -> float:
    """The spec's priority of a scope's adapters, 0 to 1."""
    told = policy.adapter(scope).priority
    return told if told >= 0 else PRIORITY_OF_CLASS[policy.plan(scope).qos]


def tenure_of(scope: str, policy: PolicyBook) -> Tenure:
    """What policy says of a scope's adapters in their slots; times of the calendar."""
    adapter = policy.adapter(scope)
    of_class = CLASS_OF_QOS[policy.plan(scope).qos]
    return Tenure(of_class, priority_of(scope, policy), adapter.load_ms, adapter.prefetch)
