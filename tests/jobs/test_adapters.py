"""Adapters in the whole job, in one process: what is asked for passes through the slots of a replica in time."""

from __future__ import annotations

import random

import msgspec

from jobs.settings import JobSettings
from schemas import PlannerState, ReplicaSample, RequestEvent, ResidentAdapter, WarmupCommand, decode, encode
from stoker.local_job import LocalJob
from tests.jobs.test_focus import START_MS, announced, book, played, promotion, usual


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


def test_an_idle_adapter_goes_where_its_slot_is_needed() -> None:
    policy = book(budget={"adapter_slots": 1}, adapter={"unload": True}, experiment={"hold_share": 0})
    job = LocalJob(JobSettings(), policy)
    for name in ("idle", "wanted"):
        job.on_record(encode(announced(name, "1")), START_MS)
    for second in range(40):
        at_ms = START_MS + second * 1_000
        sample = ReplicaSample(
            replica="r0", pool="gpu", incarnation="1", sampled_at_ms=at_ms, state="ready",
            adapters=(ResidentAdapter("idle", "1", "gpu"),),
        )  # fmt: skip
        job.on_record(encode(sample), at_ms)
        event = RequestEvent(
            event_id=f"e{second}", request_id=f"r{second}", phase="started", occurred_at_ms=at_ms, tenant="acme",
            user="ann", pool="gpu", model="m", query=f"question {second}", adapter="wanted@1",
        )  # fmt: skip
        job.on_record(encode(event), at_ms)
    commands = [decode(record, WarmupCommand) for record in job.topics.commands]
    assert {(command.action, command.target_key, command.reason.trigger) for command in commands} == {
        ("unload", "adapter:idle@1", "adapter_idle")
    }
