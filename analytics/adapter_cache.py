"""What a replica of a pool should hold: its adapter slots as a cache that the pool's requests pass through (D12).

Panes tell how often each adapter was asked for. When a pane is complete its requests, taken as spread evenly over it,
pass in the order of their times. `adapter_residency` says who goes, and floors of classes bind under each rule. Where
policy wants it, `adapter_prefetch` learns the habits of scopes from the same panes, and what they make likely takes a
slot before it is asked for. What comes of a pane after it has passed does not count here.

Times inside are of the calendar, event time multiplied by `time_scale`: classes and habits are about people's hours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from analytics.adapter_classes import CLASSES, AdapterClass
from analytics.adapter_habits import Signal
from analytics.adapter_prefetch import AdapterPrefetch, PrefetchConfig
from analytics.adapter_residency import RULES, ClassTrigger, ResidencyConfig, RuleName, TunedResidency
from analytics.minutes import PANES_PER_MINUTE
from analytics.plan_config import PlanConfig
from analytics.records import ErasableSection, Record, Section, pack, path, unpack
from analytics.stores import MapStore

MAX_USES = 8
"""Requests of an adapter that a pane lets pass: more of them within ten seconds are hits under every rule."""
ANY_MODEL = ""
"""The base model of a pool's requests: one group of replicas serves one."""
EXPECTED_MS = PrefetchConfig().horizon_ms


class Uses(NamedTuple):
    """Requests of a pane for an adapter that may be loaded; `slot` is its name among those of all scopes."""

    scope: str
    slot: str
    requests: float


@dataclass(frozen=True)
class Tenure:
    """What policy says of an adapter that may be loaded.

    Attributes:
        priority: 0 to 1. load_ms: what a load costs.
        expected: whether habits may load it ahead.
    """

    adapter_class: AdapterClass
    priority: float
    load_ms: float
    expected: bool


class PassedRecord(Record, frozen=True, array_like=True):
    """The slots that there are, the rules to choose from, and the last pane that has passed."""

    slots: int
    rules: tuple[RuleName, ...]
    pane: int


class VisitRecord(Record, frozen=True, array_like=True):
    """A pane in which a scope asked for anything."""

    pane: int
    scope: str


class ExpectedRecord(Record, frozen=True, array_like=True):
    """An adapter that has a slot before it is asked for: why, and until when it is waited for.

    Attributes:
        share: what habit says. confidence: what came true of such shares. judged: of how many.
    """

    slot: str
    signal: Signal
    share: float
    confidence: float
    judged: float
    until_ms: int


class AdapterCache:
    """The slots of a pool's replicas, which are alike.

    Args:
        store: its records begin with `dc`.
    """

    def __init__(self, config: PlanConfig, store: MapStore) -> None:
        self._config = config
        rule = config.adapter_rule
        self._rules: tuple[RuleName, ...] = RULES if rule == "tuned" else (rule,)  # type: ignore[assignment]
        self._records = ErasableSection(store, "dc")
        self._passed: PassedRecord
        self._residency: TunedResidency
        self._prefetch: AdapterPrefetch
        self._visits: dict[int, set[str]]
        self._expected: dict[str, ExpectedRecord]
        self._forget()

    def __bool__(self) -> bool:
        return self.known or self.waits

    @property
    def waits(self) -> bool:
        """Whether a pane is awaited."""
        return bool(self._visits)

    @property
    def known(self) -> bool:
        """Whether anybody told how many slots there are: without that nobody knows what a replica should hold."""
        return self._passed.slots > 0

    @property
    def rule(self) -> RuleName:
        """Which rule says who goes."""
        return self._residency.rule

    def holds(self, slot: str) -> bool:
        """Whether a replica should hold it."""
        return slot in self._residency.slots

    def expected(self, slot: str, at_ms: int) -> ExpectedRecord | None:
        """Why it has a slot although nobody asked for it yet; None where that is not so."""
        waits = self._expected.get(slot)
        return waits if waits is not None and self.holds(slot) and self._calendar(at_ms) < waits.until_ms else None

    def below(self, adapter_class: AdapterClass) -> ClassTrigger | None:
        """What to do for a class whose hit ratio is below its floor."""
        return self._residency.below(adapter_class) if self.known else None

    @property
    def evidence(self) -> dict[str, float]:
        """Of each class that was asked for: its hit ratio, and what it needs where that is below its floor."""
        found: dict[str, float] = {}
        for name in CLASSES if self.known else ():
            ratio, below = self._residency.hit_ratio(name), self._residency.below(name)
            if ratio is not None:
                found[f"adapter_hits_{name}"] = ratio
            if below is not None:
                found[f"adapter_{below.action}_{name}"] = 1.0
        return found

    def visited(self, scope: str, pane_start_ms: int) -> None:
        """Takes note that a scope asked for anything in a pane, unless that has passed."""
        pane = pane_start_ms // self._config.scaled_pane_ms
        scopes = self._visits.get(pane, ())
        if pane > self._passed.pane and scope not in scopes:
            self._visits.setdefault(pane, set()).add(scope)
            self._records.put("v" + path(str(pane), scope), pack(VisitRecord(1, pane, scope)))

    def due(self, at_ms: int) -> bool:
        """Whether a pane is complete that has not passed."""
        return self._last(at_ms) > self._passed.pane

    def pass_panes(
        self, at_ms: int, slots: int, uses_of: Callable[[int], Iterable[Uses]], tenures: Mapping[str, Tenure]
    ) -> None:
        """Lets the panes of the last minute pass that are complete and have not passed.

        Args:
            slots: of a replica; 0 where nobody told.
            uses_of: what was asked for in the pane that begins at a time.
            tenures: of every slot's adapter that may be loaded; others are nobody here.
        """
        if not slots or not tenures:
            if self:
                self.clear()
            return
        if self._passed.rules != self._rules:
            self.clear()
        if slots != self._passed.slots:
            self._residency.resize(slots)
        last = self._last(at_ms)
        for pane in range(max(self._passed.pane + 1, last - PANES_PER_MINUTE + 1), last + 1):
            self._pass(pane, list(uses_of(pane * self._config.scaled_pane_ms)), tenures)
        for pane in [pane for pane in self._visits if pane <= last]:
            for scope in self._visits.pop(pane):
                self._records.remove("v" + path(str(pane), scope))
        self._passed = PassedRecord(1, slots, self._rules, last)
        self._records.put("c", pack(self._passed))

    def clear(self) -> None:
        """Forgets everything."""
        self._records.clear()
        self._forget()

    def restore(self, key: str, blob: bytes) -> None:
        """Takes back one record; `key` is its own without the leading `dc`."""
        self._records.restored(key)
        section, rest = key[0], key[1:]
        if section == "r":
            self._residency.restore(rest, blob)
        elif section == "h":
            self._prefetch.restore(rest, blob)
        elif section == "v":
            visit = unpack(blob, VisitRecord)
            self._visits.setdefault(visit.pane, set()).add(visit.scope)
        elif section == "e":
            waits = unpack(blob, ExpectedRecord)
            self._expected[waits.slot] = waits
        else:
            self._passed = unpack(blob, PassedRecord)
            self._residency.resize(self._passed.slots)

    def _forget(self) -> None:
        self._passed = PassedRecord(1, 0, self._rules, -1)
        self._residency = TunedResidency(ResidencyConfig(1, self._rules), Section(self._records, "r"))
        self._prefetch = AdapterPrefetch(PrefetchConfig(), Section(self._records, "h"))
        self._visits, self._expected = {}, {}

    def _pass(self, pane: int, uses: list[Uses], tenures: Mapping[str, Tenure]) -> None:
        pane_ms = self._config.scaled_pane_ms
        requests: list[tuple[int, str]] = []
        asked: dict[str, set[str]] = {scope: set() for scope in self._visits.get(pane, ())}
        for scope, slot, many in uses:
            if slot in tenures:
                few = max(1, min(MAX_USES, round(many)))
                requests += [(pane * pane_ms + pane_ms * (2 * index + 1) // (2 * few), slot) for index in range(few)]
                asked.setdefault(scope, set()).add(slot)
        for at_ms, slot in sorted(requests):
            tenure = tenures[slot]
            now_ms = self._calendar(at_ms)
            self._residency.use(slot, tenure.adapter_class, now_ms, tenure.priority, tenure.load_ms)
        end_ms = self._calendar((pane + 1) * pane_ms)
        over = [slot for slot, waits in self._expected.items() if waits.until_ms <= end_ms or not self.holds(slot)]
        for slot in {*over, *(slot for _, slot in requests if slot in self._expected)}:
            del self._expected[slot]
            self._records.remove("e" + slot)
        for scope in sorted(asked):
            if not asked[scope] or any(tenures[slot].expected for slot in asked[scope]):
                self._expect(scope, tuple(sorted(asked[scope])), end_ms, tenures)

    def _expect(self, scope: str, slots: tuple[str, ...], now_ms: int, tenures: Mapping[str, Tenure]) -> None:
        """Learns from a scope's pane, and gives slots to what it makes likely."""
        for found in self._prefetch.on_request(now_ms, scope, ANY_MODEL, slots, self._residency.slots):
            tenure = tenures.get(found.adapter)
            if tenure is None or not tenure.expected:
                continue
            kept, _ = self._residency.expect(found.adapter, tenure.adapter_class, now_ms)
            if kept:
                waits = ExpectedRecord(
                    1,
                    found.adapter,
                    found.signal,
                    found.share,
                    found.confidence,
                    found.judged,
                    now_ms + EXPECTED_MS,
                )
                self._expected[waits.slot] = waits
                self._records.put("e" + waits.slot, pack(waits))

    def _last(self, at_ms: int) -> int:
        """The last pane that is complete."""
        return (at_ms - self._config.scaled_settle_ms) // self._config.scaled_pane_ms - 1

    def _calendar(self, at_ms: int) -> int:
        return round(at_ms * self._config.time_scale)
