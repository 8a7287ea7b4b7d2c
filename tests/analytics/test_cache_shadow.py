"""A replica's shadow: what its capacity and counters say of how long it keeps what nobody asks for."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from analytics.cache_models import LruCache, Run
from analytics.cache_shadow import LONGEST_MS, CacheShadow
from analytics.decay import Decay
from analytics.records import Section
from analytics.replicas import Fleet
from analytics.stores import MemoryMapStore
from schemas import ReplicaSample
from schemas.replica_sample import ReplicaState

DECAY = Decay.half_life(300_000)
BLOCK_TOKENS = 16


def sample(
    at_ms: int,
    queried: int,
    found: int,
    blocks: int | None = 100,
    incarnation: str = "1",
    state: ReplicaState = "ready",
    replica: str = "r",
) -> ReplicaSample:
    """Counters in blocks."""
    return ReplicaSample(
        replica=replica,
        pool="p",
        incarnation=incarnation,
        sampled_at_ms=at_ms,
        state=state,
        blocks_total=blocks,
        block_tokens=BLOCK_TOKENS,
        prefix_query_tokens=queried * BLOCK_TOKENS,
        prefix_hit_tokens=found * BLOCK_TOKENS,
    )


def after(samples: Sequence[ReplicaSample]) -> CacheShadow | None:
    shadow = None
    for each in samples:
        shadow = CacheShadow.after(shadow, each, DECAY)
    return shadow


def steady(seconds: int, queried_per_s: int, found_per_s: int) -> list[ReplicaSample]:
    return [sample(1000 * s, queried_per_s * s, found_per_s * s) for s in range(seconds)]


def stay_s(shadow: CacheShadow | None, at_ms: int) -> float:
    assert shadow is not None
    stay_ms = shadow.stay_ms(at_ms, DECAY)
    assert stay_ms is not None
    return stay_ms / 1000


def test_where_nothing_is_found_a_cache_lasts_for_its_capacity() -> None:
    shadow = after(steady(3_000, 4, 0))
    assert stay_s(shadow, 3_000_000) == pytest.approx(25, rel=0.01)


def test_what_is_found_makes_it_last_longer_within_its_bounds() -> None:
    shadow = after(steady(3_000, 4, 3))
    longest, shortest = 100.0, 100 * math.log(4) / 3
    assert stay_s(shadow, 3_000_000) == pytest.approx(math.sqrt(longest * shortest), rel=0.01)


def test_when_traffic_doubles_rates_and_stay_change_together() -> None:
    """Half-way both are wrong, by the same factor: how often a prefix is asked for while it stays is as before."""
    level, shadow, queried = -math.inf, None, 0
    products = []
    for s in range(4_000):
        per_s = 4 if s < 3_000 else 8
        queried += per_s
        shadow = CacheShadow.after(shadow, sample(1000 * s, queried, queried // 2), DECAY)
        level = DECAY.added(level, per_s / 400, 1000 * s)
        if s > 2_900 and s % 50 == 0:
            products.append(DECAY.rate_per_s(DECAY.amount(level, 1000 * s)) * stay_s(shadow, 1000 * s))
    assert max(products) < 1.02 * min(products)


def test_counters_say_nothing_where_a_replica_is_not_ready_or_began_anew() -> None:
    before = after(steady(600, 4, 2))
    gone = CacheShadow.after(before, sample(600_000, 0, 0, state="lost"), DECAY)
    assert gone == before
    anew = CacheShadow.after(before, sample(600_000, 1_000_000, 0, incarnation="2"), DECAY)
    assert stay_s(anew, 700_000) == stay_s(before, 700_000)
    fallen = CacheShadow.after(before, sample(600_000, 10, 5), DECAY)
    assert stay_s(fallen, 600_000) == stay_s(before, 600_000)
    again = CacheShadow.after(anew, sample(610_000, 1_000_400, 400, incarnation="2"), DECAY)
    assert stay_s(again, 700_000) < stay_s(anew, 700_000)


def test_what_has_just_begun_keeps_nothing_from_before() -> None:
    anew = CacheShadow.after(after(steady(600, 4, 2)), sample(600_000, 0, 0, incarnation="2"), DECAY)
    assert [stay_s(anew, at_ms) for at_ms in (600_000, 605_000, 610_000)] == [1, 5, 10]
    assert 30 < stay_s(anew, 700_000) < 100


def test_what_is_not_known_is_not_said() -> None:
    assert after([sample(1_000, 0, 0, blocks=None), sample(2_000, 50, 0, blocks=None)]) is None
    silent = after([sample(1_000, 0, 0), sample(2_000, 0, 0)])
    assert silent is not None
    assert silent.stay_ms(2_000, DECAY) is None
    idle = stay_s(after(steady(600, 4, 2)), 72 * 3_600_000) * 1000
    assert LONGEST_MS / 2 < idle < LONGEST_MS


@pytest.mark.parametrize("capacity", [1_500, 4_000])
def test_it_is_as_old_as_the_oldest_thing_in_a_real_cache(capacity: int) -> None:
    """A family is there if it was asked for within the time, and not if not."""
    source, cache, shadow = random.Random(7), LruCache(capacity), None
    weights = [1 / (family + 1) ** 0.9 for family in range(300)]
    last_s: dict[int, float] = {}
    at_s, queried, found = 0.0, 0, 0
    for number in range(3_000):
        at_s += source.expovariate(1.0)
        (family,) = source.choices(range(300), weights)
        prompt = [Run("system", 32), Run(family, 64), Run(("question", number), 16)]
        found += cache.request(prompt)
        queried += 112
        last_s[family] = at_s
        shadow = CacheShadow.after(shadow, sample(int(at_s * 1000), queried, found, blocks=capacity), DECAY)
    held_s = max(at_s - at for family, at in last_s.items() if cache.held(family) == 64)
    assert 0.75 < stay_s(shadow, int(at_s * 1000)) / held_s < 1.33


def test_what_goes_next_is_asked_for_no_more_often_than_what_all_is_in_the_mean() -> None:
    """All of it is asked for at one rate here, and so is what goes next."""
    source, cache, shadow = random.Random(8), LruCache(400), None
    found = 0
    for number in range(15_000):
        prompt = [Run(source.randrange(1_000), 1)]
        found += cache.request(prompt)
        shadow = CacheShadow.after(shadow, sample(100 * number, number + 1, found, blocks=400), DECAY)
    assert shadow is not None
    assert shadow.margin_per_s(1_500_000, DECAY) == pytest.approx(0.01, rel=0.1)


def test_warm_ups_are_not_among_the_requests() -> None:
    shadow = after(steady(600, 4, 2))
    assert shadow is not None
    alone_per_s = shadow.margin_per_s(600_000, DECAY)
    busy = None
    for s in range(600):
        busy = CacheShadow.after(busy, sample(1000 * s, 9 * s, 5 * s), DECAY)
        assert busy is not None
        busy = busy.with_own(5 * BLOCK_TOKENS, 2 * BLOCK_TOKENS, 1000 * s, DECAY)
    assert busy is not None
    assert busy.margin_per_s(600_000, DECAY) == pytest.approx(alone_per_s, rel=0.02)
    only = after(steady(600, 4, 2)[:2])
    assert only is not None
    assert only.with_own(10_000, 0, 2_000, DECAY).margin_per_s(2_000, DECAY) == 0.0, "a sample may be older"
    silent = after([sample(1_000, 0, 0)])
    assert silent is not None
    assert silent.margin_per_s(2_000, DECAY) is None


def test_a_fleet_takes_the_middle_of_those_that_tell() -> None:
    store = MemoryMapStore()
    fleet = Fleet(10_000, DECAY, Section(store, ""))
    for s in range(1_200):
        fleet.on_sample(sample(1000 * s, 4 * s, 0, blocks=100, replica="a"))
        fleet.on_sample(sample(1000 * s, 4 * s, 0, blocks=400, replica="b"))
        fleet.on_sample(sample(1000 * s, 4 * s, 0, blocks=None, replica="c"))
    of_a, of_b, of_all = (fleet.stay_ms(names, 1_200_000) for names in (("a",), ("b",), ("a", "b", "c")))
    assert of_a is not None
    assert of_b == pytest.approx(4 * of_a)
    assert of_all == pytest.approx(2 * of_a)
    assert fleet.stay_ms(("c",), 1_200_000) is None
    other = Fleet(10_000, DECAY, Section(store, ""))
    for _, blob in store.items():
        other.restore(blob)
    assert other.stay_ms(("a", "b"), 1_201_000) == fleet.stay_ms(("a", "b"), 1_201_000)


def test_what_a_young_cache_lacks_tells_nothing() -> None:
    fleet = Fleet(10_000, DECAY, Section(MemoryMapStore(), ""))
    fleet.on_sample(sample(0, 0, 0, replica="a"))
    fleet.on_sample(sample(0, 0, 0, blocks=None, replica="b"))
    assert [fleet.settled("a", at_ms, 20_000) for at_ms in (10_000, 20_000, 20_001)] == [False, False, True]
    assert fleet.settled("a", 10_000, None)
    assert fleet.settled("b", 10_000, 20_000), "when it began is not known"
