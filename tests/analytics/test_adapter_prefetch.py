"""What is predicted from habits, that it is only sent when it came true before, and that state survives a crash."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.adapter_habits import DAYS, HOUR_MS, AdapterHabits, HabitConfig
from analytics.adapter_prefetch import AdapterPrefetch, Prediction, PrefetchConfig
from analytics.adapter_residency import ResidencyConfig, TunedResidency
from analytics.records import Section
from analytics.stores import MemoryMapStore

DAY_MS = 24 * HOUR_MS
NOBODY: frozenset[object] = frozenset()

REQUESTS = st.lists(
    st.tuples(
        st.integers(-600_000, 7_200_000),
        st.sampled_from(["t0", "t1", "t2"]),
        st.sampled_from(["m0", "m1"]),
        st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=2).map(tuple),
    ),
    max_size=60,
)


def play(prefetch: AdapterPrefetch, requests: list[Any], at_ms: int = DAY_MS) -> list[list[Prediction]]:
    found = []
    for later_ms, tenant, model, adapters in requests:
        at_ms += later_ms
        found.append(prefetch.on_request(at_ms, tenant, model, adapters, set(adapters)))
    return found


def hints(habits: AdapterHabits, at_ms: int, tenant: str, model: str, *adapters: str) -> dict[Any, float]:
    habits.learn(at_ms, tenant, model, adapters)
    return {(hint.adapter, hint.signal): hint.share for hint in habits.hints(at_ms, tenant, model, adapters)}


def test_shares_are_of_sessions_of_companions_and_of_visits() -> None:
    habits = AdapterHabits(HabitConfig(), Section(MemoryMapStore(), ""))
    for day in range(3):
        habits.learn(day * DAY_MS, "t", "m", ("a",))
        if day < 2:
            habits.learn(day * DAY_MS + 60_000, "t", "m", ("b",))
    found = hints(habits, 3 * DAY_MS, "t", "m")
    assert found["a", "tenant"] == (3 + 0.1) / (4 + 1)
    assert found["b", "tenant"] == (2 + 0.1) / (4 + 1)
    # One visitor waits who has asked for no adapter yet; with two more it is 1 - (1 - c)³.
    assert found["a", "load"] == (3 + 0.1) / (4 + 1)
    habits.learn(3 * DAY_MS + 1, "u", "m", ())
    found = hints(habits, 3 * DAY_MS + 2, "v", "m")
    assert abs(found["a", "load"] - (1 - (1 - (3 + 0.1) / (6 + 1)) ** 3)) < 1e-12
    found = hints(habits, 3 * DAY_MS + 3, "t", "m", "a")
    assert found["b", "companion"] == (2 + 0.1) / (4 + 1)
    assert ("a", "tenant") not in found  # the session has had it


def test_the_hour_counts_days_on_which_it_was_asked_for_in_the_hours_that_come() -> None:
    habits = AdapterHabits(HabitConfig(horizon_ms=2 * HOUR_MS), Section(MemoryMapStore(), ""))
    for day in (0, 1, 2, 4):
        habits.learn(day * DAY_MS + 9 * HOUR_MS + 5, "t", "m", ("a",))
    at = 5 * DAY_MS
    shares = {hour: [hint.share for hint in habits.hour_hints(at + hour * HOUR_MS)] for hour in range(7, 12)}
    # At 8 and at 9 its hour lies within the two hours that come; of the last four (five) days it was there on 3 (4).
    assert shares == {7: [], 8: [(3 + 0.1) / 5], 9: [(4 + 0.1) / 6], 10: [], 11: []}
    assert not list(habits.hour_hints(at + 2 * DAYS * DAY_MS))


def test_only_what_came_true_before_is_sent() -> None:
    def regular(faithful: bool) -> list[int]:
        prefetch, sent = AdapterPrefetch(PrefetchConfig(), MemoryMapStore()), []
        for day in range(40):
            at_ms = day * DAY_MS
            found = prefetch.on_request(at_ms, "t", "m", (), NOBODY)
            sent.append(sum(each.adapter == "a" for each in found))
            if day < 5 or faithful:
                prefetch.on_request(at_ms + 600_000, "t", "m", ("a",), {"a"})
        return sent

    assert regular(faithful=True)[5:] == [1] * 35
    broken = regular(faithful=False)
    assert sum(broken[5:]) <= 6
    assert sum(broken[15:]) == 0


def test_an_open_prediction_is_not_made_again_and_none_is_made_of_what_is_resident() -> None:
    prefetch = AdapterPrefetch(PrefetchConfig(), MemoryMapStore())
    for day in range(10):
        prefetch.on_request(day * DAY_MS, "t", "m", (), {"a"})
        prefetch.on_request(day * DAY_MS + 60_000, "t", "m", ("a",), {"a"})
    assert prefetch.on_request(20 * DAY_MS, "t", "m", (), {"a"}) == []
    found = prefetch.on_request(20 * DAY_MS + 1, "t", "m", (), NOBODY)
    assert [each.adapter for each in found] == ["a"]
    assert found[0].confidence >= 0.5
    assert prefetch.on_request(20 * DAY_MS + 2, "t", "m", (), NOBODY) == []


@settings(max_examples=40, deadline=None)
@given(requests=REQUESTS, cut=st.integers(0, 60))
def test_a_crash_at_any_point_changes_nothing(requests: list[Any], cut: int) -> None:
    config, store = PrefetchConfig(bar=0.1, max_open=6, habits=HabitConfig(adapters_of_tenant=3)), MemoryMapStore()
    whole = AdapterPrefetch(config, store)
    first = play(whole, requests[:cut])
    copy = store.copy()
    again = AdapterPrefetch(config, copy)
    for key, blob in copy.items():
        again.restore(key, blob)
    at_ms = DAY_MS + sum(request[0] for request in requests[:cut])
    rest = play(again, requests[cut:], at_ms)
    assert rest == play(whole, requests[cut:], at_ms)
    assert copy.records == store.records
    assert first + rest == play(AdapterPrefetch(config, MemoryMapStore()), requests)


def test_memory_is_bounded_whatever_is_named() -> None:
    bounds = HabitConfig(
        max_tenants=20, max_models=5, max_adapters=30, adapters_of_tenant=4, adapters_of_model=6, visitors_of_model=7
    )
    store = MemoryMapStore()
    prefetch = AdapterPrefetch(PrefetchConfig(bar=0.1, max_open=16, habits=bounds), store)
    rng = random.Random(1)
    for number in range(1_500):
        adapters = tuple(f"a{rng.randrange(200)}" for _ in range(rng.randrange(4)))
        prefetch.on_request(number * 60_000, f"t{rng.randrange(99)}", f"m{rng.randrange(9)}", adapters, NOBODY)
        assert len(prefetch) <= 20 + 5 + 30 + 16
    assert len(store.records) <= 20 + 5 + 30 + 16 + 40 + 1
    assert max(map(len, store.records.values())) < 1_500


def test_tenants_with_habits_find_their_adapters_loaded() -> None:
    """A generated workload: 24 tenants, each has its two adapters in nearly every one of its sessions, at 8 slots."""
    rng = random.Random(5)
    requests = []
    for tenant in range(24):
        at_ms = rng.randrange(DAY_MS)
        for _ in range(30):
            requests.append((at_ms, f"t{tenant}", f"m{tenant % 3}", ()))
            for adapter in (f"a{tenant}", f"b{tenant}"):
                at_ms += rng.randrange(60_000, 300_000)
                if rng.random() < 0.9:
                    requests.append((at_ms, f"t{tenant}", f"m{tenant % 3}", (adapter,)))
            at_ms += rng.randrange(4 * HOUR_MS, 20 * HOUR_MS)
    requests.sort()

    def played(bar: float) -> tuple[int, int, int]:
        residency = TunedResidency(ResidencyConfig(8), MemoryMapStore())
        prefetch = AdapterPrefetch(PrefetchConfig(bar=bar), MemoryMapStore())
        misses = sent = useful = 0
        for at_ms, tenant, model, adapters in requests:
            for adapter in adapters:
                step = residency.use(adapter, "bronze", at_ms, 0.5, 4_400)
                misses += not step.hit
                useful += step.expected
            for found in prefetch.on_request(at_ms, tenant, model, adapters, residency.slots):
                sent += residency.expect(found.adapter, "bronze", at_ms)[0]
        return misses, sent, useful

    without, _, _ = played(bar=1.01)
    misses, sent, useful = played(bar=0.5)
    assert useful / sent >= 0.5
    assert 1 - misses / without >= 0.3
