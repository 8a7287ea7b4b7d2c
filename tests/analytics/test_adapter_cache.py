"""Requests pass through a replica's slots once their pane is complete, habits take slots ahead, and state survives."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.adapter_cache import AdapterCache, Tenure, Uses
from analytics.plan_config import PlanConfig
from analytics.stores import MemoryMapStore

PANE_MS = 10_000
DAY_MS = 86_400_000
SILVER = Tenure("silver", 0.8, 4_400.0, False)
GOLD = Tenure("gold", 1.0, 4_400.0, False)
BRONZE = Tenure("bronze", 0.5, 4_400.0, False)
EAGER = Tenure("bronze", 0.5, 4_400.0, True)


class Pool:
    """A cache, and what its pool is asked for: scope, slot and requests by start of the pane."""

    def __init__(self, slots: int = 2, rule: str = "lru", time_scale: float = 1.0, **tenures: Tenure) -> None:
        self.config = PlanConfig(adapter_rule=rule, time_scale=time_scale, pane_ms=round(PANE_MS * time_scale))
        self.slots, self.tenures = slots, tenures
        self.store = MemoryMapStore()
        self.cache = AdapterCache(self.config, self.store)
        self.asked: dict[int, list[Uses]] = {}

    def ask(self, pane: int, *slots: str, requests: float = 1.0, scope: str = "s") -> None:
        self.asked.setdefault(pane * PANE_MS, []).extend(Uses(scope, slot, requests) for slot in slots)

    def until(self, pane: int) -> None:
        """The end of a pane comes."""

        def uses_of(start_ms: int) -> Iterable[Uses]:
            return self.asked.get(start_ms, ())

        self.cache.pass_panes((pane + 1) * PANE_MS, self.slots, uses_of, self.tenures)

    def crash(self, chance: random.Random) -> None:
        self.store = self.store.copy()
        self.cache = AdapterCache(self.config, self.store)
        items = list(self.store.items())
        chance.shuffle(items)
        for key, blob in items:
            self.cache.restore(key.removeprefix("dc"), blob)

    @property
    def held(self) -> set[str]:
        return {slot for slot in self.tenures if self.cache.holds(slot)}


def test_a_pane_passes_once_when_it_is_complete_and_what_nobody_may_load_takes_no_slot() -> None:
    pool = Pool(a=BRONZE, b=BRONZE, c=BRONZE)
    pool.ask(10, "a", "stranger")
    pool.ask(11, "b", requests=500)
    assert pool.cache.due(11 * PANE_MS)
    pool.until(10)
    assert pool.held == {"a"}
    assert not pool.cache.due(12 * PANE_MS - 1)
    pool.ask(10, "c")  # told too late
    pool.until(11)
    assert pool.held == {"a", "b"}
    pool.ask(12, "c")
    pool.until(12)
    assert pool.held == {"b", "c"}, "the longest unused went"


def test_requests_are_spread_over_their_pane_so_that_who_was_asked_for_last_stays() -> None:
    pool = Pool(a=BRONZE, b=BRONZE, c=BRONZE)
    pool.ask(10, "a")  # in the middle
    pool.ask(10, "b", "c", requests=4)  # also after it
    pool.until(10)
    assert pool.held == {"b", "c"}


@pytest.mark.parametrize("rule", ["lru", "spec", "tuned"])
def test_a_class_keeps_what_it_was_promised_under_every_rule(rule: str) -> None:
    others = {f"b{number}": BRONZE for number in range(60)}
    pool = Pool(4, rule, gold=GOLD, **others)
    pool.ask(0, "gold")
    for pane in range(1, 12):
        pool.ask(pane, *(f"b{(5 * pane + number) % 60}" for number in range(5)))
        pool.until(pane)
        assert "gold" in pool.held


@pytest.mark.parametrize("time_scale", [1.0, 60.0])
def test_a_class_below_its_floor_is_told_with_what_it_needs(time_scale: float) -> None:
    pool = Pool(4, time_scale=time_scale, **{f"g{number}": GOLD for number in range(20)})
    assert pool.cache.below("gold") is None
    for pane in range(40):
        pool.ask(pane, f"g{pane % 20}")
        pool.until(pane)
    below = pool.cache.below("gold")
    assert below is not None
    assert (below.action, below.floor) == ("migration", 0.9)
    assert below.hit_ratio < below.floor
    assert pool.cache.evidence == {"adapter_hits_gold": below.hit_ratio, "adapter_migration_gold": 1.0}


def habit(pool: Pool, days: int) -> None:
    """Each morning scope `s` comes, and asks for `a` ten minutes later; others of its adapters fill the slots."""
    panes = DAY_MS // PANE_MS
    for day in range(days):
        pool.cache.visited("s", day * DAY_MS)
        pool.until(day * panes)
        pool.ask(day * panes + 60, "a")
        pool.until(day * panes + 60)
        for later in range(4):
            pool.ask(day * panes + 120 + later, "x", "y", scope="t")
            pool.until(day * panes + 120 + later)


def test_what_a_scope_does_every_day_gets_a_slot_when_it_comes_until_it_was_asked_for() -> None:
    pool = Pool(2, a=EAGER, x=BRONZE, y=BRONZE)
    habit(pool, 9)
    assert pool.held == {"x", "y"}
    day = 9
    pool.cache.visited("s", day * DAY_MS)
    pool.until(day * DAY_MS // PANE_MS)
    now_ms = day * DAY_MS + PANE_MS
    assert "a" in pool.held
    waits = pool.cache.expected("a", now_ms)
    assert waits is not None
    assert waits.confidence >= 0.5
    assert pool.cache.expected("a", now_ms + 3_600_000) is None, "an hour later nobody waits for it"
    pool.crash(random.Random(1))
    assert pool.cache.expected("a", now_ms) == waits
    pool.ask(day * DAY_MS // PANE_MS + 60, "a")
    pool.until(day * DAY_MS // PANE_MS + 60)
    assert pool.cache.holds("a")
    assert pool.cache.expected("a", now_ms + 600_000) is None


def test_habits_are_only_followed_where_policy_wants_it() -> None:
    pool = Pool(2, a=BRONZE, x=BRONZE, y=BRONZE)
    habit(pool, 9)
    pool.cache.visited("s", 9 * DAY_MS)
    pool.until(9 * DAY_MS // PANE_MS)
    assert pool.held == {"x", "y"}


def test_other_rules_begin_anew_other_slots_do_not_and_without_slots_nothing_is_kept() -> None:
    pool = Pool(3, a=BRONZE, b=BRONZE, c=BRONZE)
    pool.ask(1, "a")
    pool.ask(2, "b")
    pool.ask(3, "c")
    pool.until(3)
    pool.slots = 2
    pool.until(4)
    assert pool.held == {"b", "c"}
    pool.slots = 5
    pool.ask(5, "a")
    pool.until(5)
    assert pool.held == {"a", "b", "c"}
    pool.config = PlanConfig(adapter_rule="tuned")
    pool.crash(random.Random(2))
    assert pool.held == {"a", "b", "c"}
    pool.until(6)
    assert pool.held == {"a", "b", "c"}, "the panes of the last minute pass again"
    assert pool.cache.rule == "lru"
    pool.slots = 0
    pool.until(7)
    assert not pool.cache
    assert pool.store.records == {}


STEPS = st.lists(
    st.tuples(
        st.integers(0, 400),
        st.sampled_from("abcdef"),
        st.integers(1, 12),
        st.sampled_from("st"),
        st.sampled_from([None] * 9 + [0, 1, 3]),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, crashes=st.sets(st.integers(0, 59)))
def test_a_crash_anywhere_changes_nothing(steps: list[Any], crashes: set[int]) -> None:
    def live(crashes: set[int]) -> list[Any]:
        tenures = dict.fromkeys("ab", SILVER) | dict.fromkeys("cdef", EAGER)
        pool, pane, said = Pool(3, "tuned", **tenures), 0, []
        for index, (later, slot, requests, scope, slots) in enumerate(steps):
            if index in crashes:
                pool.crash(random.Random(index))
            pane += later
            pool.slots = pool.slots if slots is None else slots
            pool.cache.visited(scope, pane * PANE_MS)
            pool.ask(pane, slot, requests=float(requests), scope=scope)
            pool.until(pane)
            waits = [pool.cache.expected(name, pane * PANE_MS) for name in "abcdef"]
            said.append((sorted(pool.held), waits, pool.cache.rule, pool.cache.evidence))
        return [*said, dict(sorted(pool.store.records.items()))]

    assert live(crashes) == live(set())
