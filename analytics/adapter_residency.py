"""Which adapters stay on a replica: the rule that would have saved most, found by simulating all of them (D12, tuned).

Beside the real slots run *shadows*, one cache a rule, which hold names and no weights. What a rule saved is the sum of
priority × load milliseconds over its hits, halved every `memory_uses` uses. LRU is used unless another rule's lead over
it is more than chance: above two standard deviations of what they disagreed on. It stays until its lead is gone.
Floors of classes bind in all of them. A class whose hit ratio falls below its floor is reported, once a fall.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from analytics.adapter_classes import CLASSES, FLOORS, AdapterClass, ClassFloor
from analytics.adapter_history import AdapterHistory
from analytics.adapter_slots import AdapterSlots, Worth
from analytics.adapters import should_keep
from analytics.records import Record, Section, pack, unpack
from analytics.stores import MapStore

RuleName = Literal["lru", "hotness", "spec"]
RULES: tuple[RuleName, ...] = ("lru", "hotness", "spec")
_SECTIONS: Mapping[str, RuleName] = {"0": "lru", "1": "hotness", "2": "spec"}
SIGNIFICANT = 2.0
"""Standard deviations of a lead that isn't chance."""


@dataclass(frozen=True)
class ResidencyConfig:
    """Bounds of the residency of one replica.

    Attributes:
        slots: of the replica, at least 1.
        rules: what may be chosen from; one alone is simply used.
        memory_uses: after so many uses what a rule saved counts one half.
        class_memory_uses: the same of a class's hits. `class_evidence`: uses before a class is judged.
        max_expected_share: of all slots, how many may wait for a use that was predicted; at least 1.
        max_adapters: whose uses are remembered.
    """

    slots: int
    rules: tuple[RuleName, ...] = RULES
    floors: Mapping[AdapterClass, ClassFloor] = field(default_factory=lambda: dict(FLOORS))
    memory_uses: float = 1_000.0
    class_memory_uses: float = 64.0
    class_evidence: float = 16.0
    max_expected_share: float = 0.25
    max_adapters: int = 2_048


class ChoiceRecord(Record, frozen=True, array_like=True):
    """The choice as it is kept: its clock, the rule in use, each rule's lead over LRU and the lead's variance."""

    now_ms: int
    rule: RuleName
    leads: tuple[float, ...]
    variances: tuple[float, ...]


class ClassRecord(Record, frozen=True, array_like=True):
    """Decayed uses and hits of a class, and whether it is below its floor."""

    adapter_class: AdapterClass
    uses: float
    hits: float
    below: bool


@dataclass(frozen=True)
class ClassTrigger:
    """A class fell below its hit ratio.

    Attributes:
        action: `load` where the class has fewer slots than it owns, else `migration`: it needs more than this replica.
    """

    adapter_class: AdapterClass
    hit_ratio: float
    floor: float
    slots: int
    action: Literal["load", "migration"]


@dataclass(frozen=True)
class Step:
    """What came of one use.

    Attributes:
        hit: the adapter was there. expected: because it had been loaded before it was asked for.
        kept: it is there now. evicted: who went for it. rule: that chose who.
    """

    hit: bool
    expected: bool
    kept: bool
    evicted: str | None
    rule: RuleName
    trigger: ClassTrigger | None


class TunedResidency:
    """The adapters of one replica.

    Args:
        store: its records begin with h (history), r (slots), 0 1 2 (shadows), c (choice), k (classes).
    """

    def __init__(self, config: ResidencyConfig, store: MapStore | Section) -> None:
        self._config = config
        self.history = AdapterHistory(Section(store, "h"), config.max_adapters)
        self.slots = AdapterSlots(config.slots, Section(store, "r"), config.floors)
        self._shadows = {
            rule: AdapterSlots(config.slots, Section(store, section), config.floors)
            for section, rule in _SECTIONS.items()
            if rule in config.rules and len(config.rules) > 1
        }
        self._choice = ChoiceRecord(1, 0, config.rules[0], (0.0,) * len(RULES), (0.0,) * len(RULES))
        self._choices = Section(store, "c")
        self._classes = {name: ClassRecord(1, name, 0.0, 0.0, False) for name in CLASSES}
        self._class_store = Section(store, "k")

    @property
    def rule(self) -> RuleName:
        """The rule in use."""
        return self._choice.rule

    @property
    def leads(self) -> dict[RuleName, float]:
        """Priority-weighted load milliseconds that each rule saved beyond LRU, lately."""
        return dict(zip(RULES, self._choice.leads, strict=True))

    def hit_ratio(self, adapter_class: AdapterClass) -> float | None:
        """Of a class, lately; None without uses."""
        known = self._classes[adapter_class]
        return known.hits / known.uses if known.uses else None

    def below(self, adapter_class: AdapterClass) -> ClassTrigger | None:
        """What to do for a class while its hit ratio is below its floor; None while it is not."""
        known, slots = self._classes[adapter_class], self.slots.count(adapter_class)
        if not known.below:
            return None
        action: Literal["load", "migration"] = "load" if slots < self.slots.own[adapter_class] else "migration"
        floor = self._config.floors[adapter_class].hit_ratio
        return ClassTrigger(adapter_class, known.hits / known.uses, floor, slots, action)

    def resize(self, slots: int) -> None:
        """From now on the replica has so many slots, at least 1; what was learned stays."""
        self._config = replace(self._config, slots=slots)
        now_ms = self._choice.now_ms
        for rule, shadow in self._shadows.items():
            shadow.resize(slots, self._worth(rule, now_ms))
        self.slots.resize(slots, self._worth(self.rule, now_ms))

    def use(self, adapter: str, adapter_class: AdapterClass, at_ms: int, priority: float, load_ms: float) -> Step:
        """A request for an adapter.

        Args:
            at_ms: event time; one before the last is taken as the last.
            priority: 0 to 1. load_ms: what loading it costs.
        """
        now_ms = max(at_ms, self._choice.now_ms)
        hits = {}
        for rule, shadow in self._shadows.items():
            hits[rule] = shadow.use(adapter, adapter_class, now_ms, self._worth(rule, now_ms)).hit
        kept = self.slots.use(adapter, adapter_class, now_ms, self._worth(self.rule, now_ms))
        self.history.add(adapter, adapter_class, now_ms, priority)
        self.history.forget(_Anywhere((self.slots, *self._shadows.values())))
        used = self._choice.rule
        self._judge(now_ms, hits, priority * load_ms)
        return Step(kept.hit, kept.expected, kept.kept, kept.evicted, used, self._judge_class(adapter_class, kept.hit))

    def expect(self, adapter: str, adapter_class: AdapterClass, at_ms: int) -> tuple[bool, str | None]:
        """A load before anybody asked: whether there is room, and who went for it. Shadows are not told of it."""
        now_ms = max(at_ms, self._choice.now_ms)
        waiting = sum(1 for held in self.slots.held.values() if held.expected)
        if adapter in self.slots or waiting >= max(1, int(self._config.max_expected_share * self._config.slots)):
            return False, None
        kept = self.slots.expect(adapter, adapter_class, now_ms, self._worth(self.rule, now_ms))
        return kept.kept, kept.evicted

    def restore(self, key: str, blob: bytes) -> None:
        """Takes back one record."""
        section, rest = key[0], key[1:]
        if section == "h":
            self.history.restore(rest, blob)
        elif section == "r":
            self.slots.restore(blob)
        elif section in _SECTIONS:
            if _SECTIONS[section] in self._shadows:
                self._shadows[_SECTIONS[section]].restore(blob)
        elif section == "c":
            self._choice = unpack(blob, ChoiceRecord)
        else:
            known = unpack(blob, ClassRecord)
            self._classes[known.adapter_class] = known

    def _worth(self, rule: RuleName, now_ms: int) -> Worth:
        history = self.history

        def hotness(adapter: str, touched_ms: int) -> tuple[float, ...]:
            used = history.of(adapter)
            heat = history.heat(adapter, now_ms)
            if used is None or touched_ms > used.uses_ms[-1]:
                # It was loaded for a use that is expected: that counts as one.
                heat += math.exp2((touched_ms - now_ms) / history.half_life_ms)
            return heat, touched_ms

        def spec(adapter: str, touched_ms: int) -> tuple[float, ...]:
            used = history.of(adapter)
            return float(used is not None and should_keep(used.uses_ms, used.priority)), touched_ms

        def lru(_: str, touched_ms: int) -> tuple[float, ...]:
            return (float(touched_ms),)

        return {"lru": lru, "hotness": hotness, "spec": spec}[rule]

    def _judge(self, now_ms: int, hits: Mapping[RuleName, bool], saved: float) -> None:
        """Notes what each rule saved beyond LRU, and chooses."""
        faded = math.exp2(-1.0 / self._config.memory_uses)
        leads, variances = [], []
        for rule, lead, variance in zip(RULES, self._choice.leads, self._choice.variances, strict=True):
            more = saved * (hits.get(rule, False) - hits.get("lru", False))
            leads.append(lead * faded + more)
            variances.append(variance * faded + more * more)
        chosen = self._choice.rule
        if self._shadows:
            if leads[RULES.index(chosen)] < 0:
                chosen = "lru"
            best = max(self._shadows, key=lambda rule: leads[RULES.index(rule)])
            lead, variance = leads[RULES.index(best)], variances[RULES.index(best)]
            if lead > max(leads[RULES.index(chosen)], SIGNIFICANT * math.sqrt(variance)):
                chosen = best
        self._choice = ChoiceRecord(1, now_ms, chosen, tuple(leads), tuple(variances))
        self._choices.put("", pack(self._choice))

    def _judge_class(self, adapter_class: AdapterClass, hit: bool) -> ClassTrigger | None:
        faded = math.exp2(-1.0 / self._config.class_memory_uses)
        old, floor = self._classes[adapter_class], self._config.floors[adapter_class].hit_ratio
        uses, hits = old.uses * faded + 1.0, old.hits * faded + hit
        below = uses >= self._config.class_evidence and hits / uses < floor
        self._classes[adapter_class] = ClassRecord(1, adapter_class, uses, hits, below)
        self._class_store.put(adapter_class, pack(self._classes[adapter_class]))
        return None if old.below else self.below(adapter_class)


class _Anywhere:
    """What any of some caches holds."""

    def __init__(self, caches: tuple[AdapterSlots, ...]) -> None:
        self._caches = caches

    def __contains__(self, adapter: object) -> bool:
        return any(adapter in cache.held for cache in self._caches)
