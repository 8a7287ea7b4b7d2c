"""The books balance to the record, whatever dies and whenever, and across a move to another parallelism."""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from dataclasses import dataclass

import pytest

from schemas import BrokenConfiguration
from stoker.bench.workload import Workload, WorkloadConfig
from stoker.stack.flink import FlinkApplication, start_application
from stoker.stack.kafka import Kafka
from stoker.stack.redis import Redis
from tests.jobs.deployment import READY_S, Deployment, paced
from tests.jobs.kills import Kill, Parts, jobmanager, kafka, redis, taskmanager
from tests.jobs.traffic import Mix

ROUNDS = 2
"""Of each kill alone; all of them one after the other are repeated in tests/e2e/test_kills.py."""
RATE_PER_S = 200.0
SECONDS = 6.0
"""Of traffic around each kill."""

pytestmark = [pytest.mark.service, pytest.mark.slow]


@dataclass
class Rounds:
    """What came of all rounds together.

    Attributes:
        late: events that were late in them.
        commands: ids that were known before the first; None before that.
    """

    late: int = 0
    commands: set[str] | None = None


@pytest.fixture(scope="module")
def rounds() -> Rounds:
    """One sum for all rounds of this module."""
    return Rounds()


def move(deployment: Deployment, source: int, target: int, *, ingest_apart: bool = False) -> None:
    """Savepoint at one parallelism, restore at another: what was counted before is known afterwards."""
    app = deployment.at(source)
    with pytest.raises(BrokenConfiguration, match="runs already"):
        start_application(app.name, app.record.script, state=deployment.state)
    workload = Workload(WorkloadConfig(seed=uuid.uuid4().int >> 96))
    sent: list[tuple[bytes, int]] = []
    for parallelism in (source, target):
        deployment.at(parallelism, ingest_apart=ingest_apart)
        before = deployment.settle()
        for record, at_ms in sent:  # a restored shard knows them, or knows that they are late
            deployment.send(record, at_ms=at_ms)
        fresh = [(workload.record(at_ms), at_ms) for at_ms in paced(1_000.0, 0.2)]
        for record, at_ms in fresh:
            deployment.send(record, at_ms=at_ms)
        after = deployment.settle()
        assert after["counted"] - before["counted"] == len(fresh)
        assert after["duplicate"] + after["late"] - before["duplicate"] - before["late"] == len(sent)
        sent = fresh


def test_restored_at_parallelism_2_nothing_is_lost_or_repeated(deployment: Deployment) -> None:
    move(deployment, 1, 2)


@pytest.mark.faults
@pytest.mark.parametrize("turn", range(ROUNDS))
@pytest.mark.parametrize("kill", [taskmanager, jobmanager, kafka, redis])
def test_books_balance_after_kill_9_at_a_random_moment(
    deployment: Deployment, kafka_server: Kafka, redis_server: Redis, rounds: Rounds, kill: Kill, turn: int
) -> None:
    app = deployment.at(2)
    seed = int(os.environ.get("STOKER_FAULT_SEED", "0")) + uuid.uuid4().int % 10**6
    luck = random.Random(seed)
    print(f"turn {turn}, seed {seed}", flush=True)
    before = deployment.settle()
    if rounds.commands is None:
        rounds.commands = set(deployment.outputs.commands)
    mix = Mix(seed)

    def feed() -> None:
        for at_ms in paced(RATE_PER_S, SECONDS):
            record, record_ms = mix.record(at_ms)
            deployment.send(record, at_ms=record_ms)

    feeder = threading.Thread(target=feed)
    feeder.start()
    time.sleep(luck.uniform(1.0, SECONDS - 1.0))
    kill(Parts(app, kafka_server, redis_server, luck))
    feeder.join()
    app.wait_running(READY_S)
    after = deployment.settle()
    grown = {fate: after[fate] - before[fate] for fate in after}
    assert sum(grown.values()) == int(RATE_PER_S * SECONDS)
    # How many of the old events are late depends on how far event time was when they were read: some, over all rounds.
    rounds.late += grown["late"]
    for fate in ("counted", "duplicate", "dead"):
        assert grown[fate] > 0, grown


@pytest.mark.faults
def test_over_all_rounds_some_events_were_late_and_commands_went_out(deployment: Deployment, rounds: Rounds) -> None:
    known = rounds.commands
    if known is None:
        pytest.skip("no round was run")
    assert rounds.late > 0
    deployment.wait(lambda: bool(deployment.outputs.commands.keys() - known), "a command of these rounds")


def hosts(app: FlinkApplication, operator: str) -> set[str]:
    """The TaskManagers at which an operator's subtasks are."""
    rest = app.rest()
    try:
        vertices = rest.get(f"/jobs/{app.job_id}")["vertices"]
        of_it = [vertex["id"] for vertex in vertices if operator in vertex["name"].split(" -> ")]
        assert len(of_it) == 1, [vertex["name"] for vertex in vertices]
        found = rest.get(f"/jobs/{app.job_id}/vertices/{of_it[0]}/taskmanagers")["taskmanagers"]
    finally:
        rest.close()
    return {host["taskmanager-id"] for host in found}


def test_restored_at_parallelism_1_with_ingest_apart_nothing_is_lost_or_repeated(deployment: Deployment) -> None:
    move(deployment, 2, 1, ingest_apart=True)
    ingest, demand = hosts(deployment.app, "ingest"), hosts(deployment.app, "demand")
    assert len(ingest) == len(demand) == 1
    assert ingest != demand
