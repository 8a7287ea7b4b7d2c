"""Which planner a pool has, and that each hears only what is its kind's business."""

from __future__ import annotations

import pytest

from analytics.engine_planning import EnginePlanner
from analytics.envelopes import Answered, Tag, seal
from analytics.plan_config import PlanConfig
from analytics.planners import planner_of
from analytics.policy import PolicyBook
from analytics.redis_planning import RedisPlanner
from analytics.stores import MemoryMapStore
from tests.analytics.test_planning import REDIS, T0, candidate, embedded, hot

ANSWER = seal(Tag.ANSWER, REDIS, Answered("s", "1" * 32, "2" * 32, "2" * 32, "m", "", "t", "1", T0))


@pytest.mark.parametrize(("pool", "kind"), [("p", EnginePlanner), (REDIS, RedisPlanner)])
def test_a_pool_has_the_planner_of_its_kind(pool, kind):
    assert type(planner_of(PlanConfig(), pool, MemoryMapStore())) is kind


@pytest.mark.parametrize(
    ("pool", "envelope", "heard"),
    [
        ("p", hot(candidate("a", "b")), True),
        (REDIS, hot(candidate("a", "b")), False),
        ("p", embedded("q", T0), False),
        (REDIS, embedded("q", T0), True),
        ("p", ANSWER, False),
        (REDIS, ANSWER, True),
    ],
)
def test_what_another_kind_of_pool_holds_leaves_nothing_behind(pool, envelope, heard):
    store = MemoryMapStore()
    planner = planner_of(PlanConfig(), pool, store)
    planner.on_envelope(envelope, T0, T0, PolicyBook())
    assert bool(store.records) is heard
    assert planner.blank is not heard
    assert (planner.next_timer_ms is not None) is heard
