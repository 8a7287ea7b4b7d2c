"""Adapters in the whole job, in one process: what is asked for passes through the slots of a replica in time."""

from __future__ import annotations

import random

import msgspec

from schemas import PlannerState, decode
from tests.jobs.test_focus import book, played, promotion, usual


def test_requests_pass_through_the_slots_of_a_replica_pane_by_pane() -> None:
    """A pane's totals come from all shards before it passes, else nobody would be seen to hit."""
    chance = random.Random(3)
    asked = [*usual(chance), *promotion(chance)]
    policy = book(plan={"qos": "burstable"}, budget={"adapter_slots": 2}, adapter={"prefetch": True})
    job = played(asked, policy, adapters={"shop": "shop@1", "sale": "sale@1"})
    insights = [record for record in job.topics.insights if msgspec.json.decode(record)["schema"] == "planner_state/1"]
    told = [state.evidence for state in (decode(record, PlannerState) for record in insights) if state.pool == "gpu"]
    assert told[-1]["adapter_versions"] == 2
    ratios = [evidence["adapter_hits_silver"] for evidence in told if "adapter_hits_silver" in evidence]
    assert len(ratios) >= 8, "every slide tells it"
    assert ratios[-1] > 0.95, "two adapters, two slots: only their first uses miss"
