"""Which planner a pool has."""

from __future__ import annotations

from analytics.engine_planning import EnginePlanner
from analytics.plan_config import PlanConfig
from analytics.planning import Planner
from analytics.pools import is_redis
from analytics.redis_planning import RedisPlanner
from analytics.stores import MapStore


def planner_of(config: PlanConfig, pool: str, store: MapStore) -> Planner:
    """The planner of a pool, with all that the store holds of it."""
    return (RedisPlanner if is_redis(pool) else EnginePlanner)(config, pool, store)
