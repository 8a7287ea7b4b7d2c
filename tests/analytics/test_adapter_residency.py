"""Slots and floors of classes hold under every rule, the choice follows what was saved, and state survives a crash."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.adapter_classes import CLASSES, FLOORS, AdapterClass, own_slots
from analytics.adapter_residency import RULES, ResidencyConfig, TunedResidency
from analytics.stores import MemoryMapStore

LOAD_MS = 4_400
RULE_SETS = [(rule,) for rule in RULES] + [RULES]

# An adapter keeps its class in most of these; the last ones change it.
USES = st.lists(
    st.tuples(
        st.integers(0, 14),
        st.integers(-20_000, 90_000),
        st.sampled_from(["use", "use", "use", "expect"]),
        st.sampled_from([None] * 9 + list(CLASSES)),
    ),
    max_size=80,
)


def class_of(number: int, told: AdapterClass | None) -> AdapterClass:
    return told or CLASSES[number % 3]


def play(residency: TunedResidency, steps: list[Any], at_ms: int = 1_000_000) -> list[Any]:
    found: list[Any] = []
    for number, later_ms, kind, told in steps:
        at_ms += later_ms
        name, of_class = f"a{number}", class_of(number, told)
        if kind == "use":
            found.append(residency.use(name, of_class, at_ms, (number % 10) / 10, LOAD_MS))
        else:
            found.append(residency.expect(name, of_class, at_ms))
    return found


def test_own_slots_are_the_floors_of_the_shares_and_at_least_one() -> None:
    assert own_slots(16) == {"gold": 5, "silver": 2, "bronze": 9}
    assert own_slots(20) == {"gold": 7, "silver": 3, "bronze": 10}  # 0.35 · 20 is 7
    assert own_slots(3) == {"gold": 1, "silver": 1, "bronze": 1}
    assert own_slots(1) == {"gold": 1, "silver": 0, "bronze": 0}
    for slots in range(1, 100):
        assert sum(own_slots(slots).values()) == slots


@settings(max_examples=60, deadline=None)
@given(steps=USES, slots=st.integers(1, 9), rules=st.sampled_from(RULE_SETS))
def test_slots_are_never_exceeded_and_both_floors_hold(steps: list[Any], slots: int, rules: Any) -> None:
    residency = TunedResidency(ResidencyConfig(slots, rules), MemoryMapStore())
    now_ms = at_ms = 1_000_000
    for step in steps:
        at_ms += step[1]
        now_ms = max(now_ms, at_ms) if step[2] == "use" else now_ms
        before = dict(residency.slots.held)
        play(residency, [(step[0], 0, *step[2:])], at_ms)
        after = residency.slots.held
        assert len(after) <= slots
        comer = class_of(step[0], step[3])
        own = residency.slots.own
        count = {name: sum(1 for held in before.values() if held.adapter_class == name) for name in CLASSES}
        for gone in set(before) - set(after):
            held = before[gone]
            assert held.stays_ms <= max(now_ms, at_ms)
            assert held.adapter_class == comer or count[held.adapter_class] > own[held.adapter_class]
        # A class that has fewer slots than it owns always gets one.
        if step[2] == "use" and count[comer] < own[comer]:
            assert f"a{step[0]}" in after
        for name in CLASSES:
            protected = [each for each in after.values() if each.adapter_class == name and each.stays_ms > now_ms]
            assert len(protected) <= own[name]


@pytest.mark.parametrize("rules", RULE_SETS)
def test_gold_stays_two_minutes_through_a_flood_of_bronze(rules: Any) -> None:
    residency = TunedResidency(ResidencyConfig(4, rules), MemoryMapStore())
    residency.use("gold", "gold", 0, 0.0, LOAD_MS)
    for number in range(200):
        residency.use(f"b{number}", "bronze", 1_000 + number * 590, 1.0, LOAD_MS)
        assert "gold" in residency.slots
    # It is the only one of its class, and gold owns a slot: bronze may borrow nothing of it even then.
    residency.use("late", "bronze", 500_000, 1.0, LOAD_MS)
    assert "gold" in residency.slots
    # Another gold takes it when the time is over, as soon as no bronze one has borrowed more than bronze owns.
    residency.use("silver", "silver", 500_001, 0.5, LOAD_MS)
    residency.use("gold2", "gold", 500_002, 0.5, LOAD_MS)
    assert "gold" not in residency.slots
    assert "silver" in residency.slots


def test_where_all_is_protected_a_newcomer_is_not_kept() -> None:
    residency = TunedResidency(ResidencyConfig(1), MemoryMapStore())
    residency.use("one", "gold", 0, 0.5, LOAD_MS)
    assert not residency.use("two", "gold", 119_999, 0.5, LOAD_MS).kept
    assert residency.use("one", "gold", 119_999, 0.5, LOAD_MS).hit
    assert residency.use("two", "gold", 119_999 + 120_000, 0.5, LOAD_MS).evicted == "one"


@settings(max_examples=40, deadline=None)
@given(steps=USES, cut=st.integers(0, 80), slots=st.integers(1, 6))
def test_a_crash_at_any_point_changes_nothing(steps: list[Any], cut: int, slots: int) -> None:
    config, store = ResidencyConfig(slots), MemoryMapStore()
    whole = TunedResidency(config, store)
    first = play(whole, steps[:cut])
    copy = store.copy()
    again = TunedResidency(config, copy)
    for key, blob in copy.items():
        again.restore(key, blob)
    at_ms = 1_000_000 + sum(step[1] for step in steps[:cut])
    rest = play(again, steps[cut:], at_ms)
    assert rest == play(whole, steps[cut:], at_ms)
    assert copy.records == store.records
    assert first + rest == play(TunedResidency(config, MemoryMapStore()), steps)  # and it is deterministic


def test_the_rule_that_saves_most_is_found_and_left_again() -> None:
    residency = TunedResidency(ResidencyConfig(4, memory_uses=200), MemoryMapStore())
    at_ms, rules = 0, []
    # Three adapters come every round, between them a scan of ones that never come again: LRU keeps the scan.
    for round_ in range(300):
        for name in ["x", "y", "z", *(f"s{round_}.{number}" for number in range(4))]:
            at_ms += 1_000
            residency.use(name, "bronze", at_ms, 0.9 if name in "xyz" else 0.1, LOAD_MS)
        rules.append(residency.rule)
    assert rules[0] == "lru"
    assert rules[-1] in ("hotness", "spec")
    assert residency.leads[residency.rule] > 0
    # Then what was asked for last is asked for again, and old heat is worth nothing.
    for number in range(4_000):
        at_ms += 1_000
        residency.use(f"n{(number // 8) + number % 3}", "bronze", at_ms, 0.9, LOAD_MS)
    assert residency.leads[residency.rule] >= 0


def test_a_class_below_its_floor_is_reported_once_a_fall_with_what_to_do() -> None:
    residency = TunedResidency(ResidencyConfig(8, ("lru",)), MemoryMapStore())
    found = [residency.use(f"g{number % 12}", "gold", number * 200_000, 1.0, LOAD_MS).trigger for number in range(100)]
    told = [trigger for trigger in found if trigger is not None]
    assert len(told) == 1
    assert (told[0].adapter_class, told[0].floor, told[0].action) == ("gold", FLOORS["gold"].hit_ratio, "migration")
    assert told[0].hit_ratio < told[0].floor
    again = [residency.use("g0", "gold", 30_000_000 + number, 1.0, LOAD_MS).trigger for number in range(400)]
    assert set(again) == {None}
    fallen = [residency.use(f"h{number}", "gold", 40_000_000 + 200_000 * number, 1.0, LOAD_MS) for number in range(99)]
    assert sum(step.trigger is not None for step in fallen) == 1
    assert residency.hit_ratio("silver") is None


def test_memory_is_bounded_whatever_is_named() -> None:
    store = MemoryMapStore()
    residency = TunedResidency(ResidencyConfig(8, max_adapters=50), store)
    for number in range(2_000):
        residency.use(f"a{number}", CLASSES[number % 3], number * 50, 0.5, LOAD_MS)
    assert len(residency.history) <= 50
    assert len(store.records) < 50 + 4 * 8 + 150  # history, slots, gaps by length


def test_half_life_follows_the_median_gap() -> None:
    residency = TunedResidency(ResidencyConfig(4), MemoryMapStore())
    for number in range(50):
        residency.use("a", "bronze", number * 60_000, 0.5, LOAD_MS)
    assert residency.history.half_life_ms == pytest.approx(2.5 * 60_000, rel=0.1)
