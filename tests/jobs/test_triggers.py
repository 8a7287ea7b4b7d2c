"""Triggers of commands to GPU pools on real Kafka and Flink: real events in, the command with its reason out.

Each test has a pool of its own. Patterns of sessions, managed prompts and the rate of an adapter: test_watched_job.
"""

from __future__ import annotations

import uuid

import pytest

from schemas import EVERY_SCOPE, Adapter, Prefix, Segment, WarmupCommand
from schemas.canonical import adapter_key
from schemas.replica_sample import ResidentAdapter
from tests.jobs.asking import ask, conversation, waited
from tests.jobs.conftest import WATCHED
from tests.jobs.deployment import Deployment, now_ms
from tests.jobs.rules import Rules
from tests.jobs.telling import announce, applied, lost, replica_of, sample

pytestmark = [pytest.mark.service, pytest.mark.slow]

LONG_AGO_MS = 3_600_000


def test_a_hot_prefix_is_warmed_and_at_once_again_where_it_was_lost(deployment: Deployment) -> None:
    deployment.at(1)
    deployment.heartbeat()
    prefixes: dict[str, list[tuple[Segment, ...]]] = {}

    def some_come_back() -> None:
        """Asked for twice to five times: what is asked for more often is kept there by its own requests.

        Each time in another pool, for a pool learns how seldom such prefixes come back for good.
        """
        pool = f"gpu-{uuid.uuid4().hex}"
        prefixes[pool] = []
        sample(deployment, pool)
        for times in range(2, 6):
            prefixes[pool].append(conversation(f"sys {uuid.uuid4().hex}", "the manual"))
            for _ in range(times):
                ask(deployment, f"question {uuid.uuid4().hex}", prefixes[pool][-1], pool=pool)

    hot = waited(
        deployment, "hot_prefix", lambda command: command.pool in prefixes and command.arm == "warm", some_come_back
    )
    pool = hot.pool
    assert hot.scope == WATCHED
    assert isinstance(hot.target, Prefix)
    assert hot.target.segments in prefixes[pool]
    assert hot.replicas.names == (replica_of(pool),)
    evidence = hot.reason.evidence
    assert evidence["rate_per_s"] > 0
    assert evidence["requests"] > 1
    assert (evidence["replicas_ready"], evidence["replicas_missing"]) == (1, 1)

    def warms_it(command: WarmupCommand) -> bool:
        return (command.pool, command.target_key) == (pool, hot.target_key)

    answered: set[str] = set()

    def it_is_lost() -> None:
        sample(deployment, pool)
        ask(deployment, f"question {uuid.uuid4().hex}", hot.target.segments, pool=pool)
        for command in filter(warms_it, deployment.outputs.commands.values()):
            if command.command_id not in answered:
                applied(deployment, command)
                answered.add(command.command_id)
        deployment.flush()
        lost(deployment, hot)

    again = waited(deployment, "lost_prefix", warms_it, it_is_lost)
    assert again.target == hot.target
    assert (again.scope, again.lane, again.priority) == (WATCHED, "fast", 999)
    assert again.replicas.names == (replica_of(pool),)
    assert again.reason.evidence["p_absent_prior"] == 1.0
    deployment.settle()


def test_an_announced_prompt_is_warmed_before_anybody_asks_for_it(deployment: Deployment, pool: str) -> None:
    segments = conversation(f"sys {uuid.uuid4().hex}", "the new manual")

    def told() -> None:
        sample(deployment, pool)
        announce(deployment, pool, now_ms() + 2_000, kind="prompt", name="manual", model="m", segments=segments)

    command = waited(deployment, "announced", lambda command: command.pool == pool, told)
    assert command.scope == WATCHED
    assert command.target == Prefix(model="m", segments=segments)
    assert command.lane == "fast"
    assert command.replicas.names == (replica_of(pool),)
    assert -6_000 < command.reason.evidence["takes_effect_in_ms"] <= 3_000
    deployment.settle()


def test_an_adapter_in_use_is_loaded_where_it_is_absent(deployment: Deployment, pool: str) -> None:
    name = uuid.uuid4().hex
    announce(deployment, pool, now_ms() - LONG_AGO_MS, kind="adapter", name=name, source=f"adapters/{name}")

    def used_twice() -> None:
        sample(deployment, pool)
        for _ in range(2):
            ask(deployment, f"question {uuid.uuid4().hex}", pool=pool, adapter=f"{name}@2")

    # Further apart than a minute, which lasts six seconds here: five uses in one would be another trigger.
    command = waited(deployment, "adapter_hot", lambda command: command.pool == pool, used_twice, pause_s=8.0)
    assert (command.scope, command.action) == (WATCHED, "load")
    assert command.target == Adapter(name=name, version="2", source=f"adapters/{name}")
    assert command.replicas.names == (replica_of(pool),)
    assert command.reason.evidence["uses_in_minute"] == 2
    assert command.reason.evidence["adapter_priority"] == 0.8
    deployment.settle()


def test_an_idle_adapter_goes_where_its_slot_is_needed(deployment: Deployment, pool: str, rules: Rules) -> None:
    idle, wanted = (f"{name}-{uuid.uuid4().hex}" for name in ("idle", "wanted"))
    rules.tell(WATCHED, "adapter", unload=True)
    rules.tell(EVERY_SCOPE, "budget", adapter_slots=1)
    for name in (idle, wanted):
        announce(deployment, pool, now_ms() - LONG_AGO_MS, kind="adapter", name=name)

    def the_other_is_asked_for() -> None:
        sample(deployment, pool, ResidentAdapter(idle, "2", "gpu"))
        for _ in range(8):
            ask(deployment, f"question {uuid.uuid4().hex}", pool=pool, adapter=f"{wanted}@2")

    key = adapter_key(idle, "2")
    command = waited(deployment, "adapter_idle", lambda command: command.target_key == key, the_other_is_asked_for)
    assert (command.scope, command.pool) == (WATCHED, pool)
    assert (command.action, command.arm) == ("unload", "warm")
    assert command.target == Adapter(name=idle, version="2")
    assert command.replicas.names == (replica_of(pool),)
    assert command.reason.evidence["replicas_named"] == 1
    deployment.settle()
