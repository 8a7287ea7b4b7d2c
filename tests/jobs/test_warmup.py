"""The job on real Kafka, Redis and Flink: events in, commands out, and what must not disturb it."""

from __future__ import annotations

import uuid

import pytest

from schemas import Embedding, Policy, RequestEvent, RewardEvent, WarmupCommand, encode
from schemas.canonical import query_sha256
from schemas.topics import POLICY, REWARDS, TELEMETRY
from stoker.bench.workload import Workload, WorkloadConfig
from tests.jobs.deployment import AHEAD_MS, Deployment, now_ms
from tests.jobs.traffic import bad_requests

pytestmark = [pytest.mark.service, pytest.mark.slow]


def seed() -> int:
    """Identities that no other test has used."""
    return uuid.uuid4().int >> 96


def ask(deployment: Deployment, query: str, user: str, **fields: object) -> RequestEvent:
    """One request of a user, sent."""
    name = uuid.uuid4().hex
    event = RequestEvent(
        event_id=name, request_id=name, phase="started", occurred_at_ms=now_ms(), tenant="t", user=user, pool="gpu",
        model="m", query=query, **fields,
    )  # fmt: skip
    deployment.send(encode(event), at_ms=event.occurred_at_ms)
    return event


def embedding_command(deployment: Deployment, query: str) -> WarmupCommand | None:
    """The command that warms this query's embedding, if it was issued."""
    for command in deployment.outputs.commands.values():
        if isinstance(command.target, Embedding) and command.target.query_sha256 == query_sha256(query):
            return command
    return None


def test_second_sight_becomes_a_command_with_vector_and_text_in_redis(deployment: Deployment, redis_url: str) -> None:
    import redis

    deployment.at(1)
    deployment.heartbeat()
    query = f"how do I reset my password {uuid.uuid4().hex}"
    for user in ("ann", "bob"):
        ask(deployment, query, user)
    deployment.flush()
    deployment.wait(lambda: embedding_command(deployment, query) is not None, "the command")
    command = embedding_command(deployment, query)
    assert command is not None
    assert command.lane == "fast"
    assert command.pool == deployment.settings.redis.pool_key
    assert command.scope == "default"
    assert isinstance(command.target, Embedding)
    store = redis.Redis.from_url(redis_url)
    vector = store.get(f"stoker:default:vec:{command.target.fingerprint}:{query_sha256(query)}")
    assert isinstance(vector, bytes)
    assert len(vector) == 384 * 4
    assert store.exists(f"stoker:default:blob:{query_sha256(query)}")
    deployment.settle()


def test_bad_input_is_dead_lettered_with_reason_and_path_and_never_restarts_the_job(deployment: Deployment) -> None:
    deployment.at(1)
    before = deployment.settle()
    restarts = deployment.restarts()
    event = Workload(WorkloadConfig(seed=seed())).event(now_ms())
    bad = bad_requests(event)
    for record, _, _ in bad.values():
        deployment.send(record, at_ms=event.occurred_at_ms)
    deployment.send(encode(event), at_ms=event.occurred_at_ms)
    deployment.send(None, key=b"a tombstone")
    deployment.send(b'{"schema":"replica_sample/1"}', TELEMETRY)
    deployment.send(b"not json", POLICY, key=b"k")
    deployment.flush()  # the broker refuses a batch as a whole: these two go alone
    deployment.send(b"x" * 5_000_000)
    deployment.send(encode(event), at_ms=now_ms() + 3_600_000)
    deployment.flush()
    after = deployment.settle()
    assert deployment.refused == ["MSG_SIZE_TOO_LARGE", "INVALID_TIMESTAMP"]
    deployment.refused.clear()
    assert after["dead"] - before["dead"] == len(bad)
    assert after["counted"] - before["counted"] == 1
    told = {(letter.reason, letter.path, letter.size) for letter in deployment.outputs.dead.values()}
    for name, (record, reason, path) in bad.items():
        assert (reason, path, len(record)) in told, name
    kafka = deployment.settings.kafka
    assert {kafka.topic(TELEMETRY), kafka.topic(POLICY)} <= {
        letter.source_topic for letter in deployment.outputs.dead.values()
    }
    assert deployment.restarts() == restarts


def test_a_thousand_warm_ups_change_no_window_total(deployment: Deployment) -> None:
    deployment.at(1)
    workload = Workload(WorkloadConfig(seed=seed()))
    for _ in range(50):
        at_ms = now_ms()
        deployment.send(workload.record(at_ms), at_ms=at_ms)
    before = deployment.settle()
    totals = deployment.outputs.totals()
    commands = set(deployment.outputs.commands)
    for _ in range(1_000):
        event = workload.event(now_ms())
        warm_up = encode(RequestEvent(**{f: getattr(event, f) for f in event.__struct_fields__} | {"origin": "warmup"}))
        deployment.send(warm_up, at_ms=event.occurred_at_ms)
    after = deployment.settle()
    assert after["not_demand"] - before["not_demand"] == 1_000
    assert after["counted"] == before["counted"]
    assert deployment.outputs.totals() == totals
    new = [
        c for i, c in deployment.outputs.commands.items() if i not in commands and c.reason.trigger == "second_sight"
    ]
    assert new == []


def test_a_hostile_producer_with_future_stamps_makes_nobody_elses_event_late(deployment: Deployment) -> None:
    """On every partition of a real broker. By what margin, at production's figures: tests/stoker/test_local_job.py."""
    deployment.at(1)
    honest, hostile = Workload(WorkloadConfig(seed=seed())), Workload(WorkloadConfig(seed=seed()))
    before = deployment.settle()
    for _ in range(100):
        ahead_ms = now_ms() + AHEAD_MS - 1_000
        for partition in range(4):
            deployment.send(hostile.record(ahead_ms), at_ms=ahead_ms, partition=partition)
        deployment.flush()
        at_ms = now_ms()
        deployment.send(honest.record(at_ms), at_ms=at_ms)
        deployment.flush()
    after = deployment.settle()
    assert deployment.refused == []
    assert after["late"] == before["late"]
    assert after["counted"] - before["counted"] == 500


def test_both_phases_of_a_request_count_once_and_a_repetition_is_a_duplicate(deployment: Deployment) -> None:
    deployment.at(1)
    before = deployment.settle()
    workload = Workload(WorkloadConfig(seed=seed()))
    for _ in range(20):
        event = workload.event(now_ms())
        fields = {f: getattr(event, f) for f in event.__struct_fields__}
        started = encode(event)
        finished = encode(
            RequestEvent(**fields | {"phase": "finished", "completed_at_ms": event.occurred_at_ms, "status": 200})
        )
        for record in (started, finished, started, finished):
            deployment.send(record, at_ms=event.occurred_at_ms)
    after = deployment.settle()
    assert {fate: after[fate] - before[fate] for fate in ("counted", "second_phase", "duplicate")} == {
        "counted": 20,
        "second_phase": 20,
        "duplicate": 40,
    }


def test_a_policy_reaches_the_running_job_and_an_older_version_does_not_undo_it(deployment: Deployment) -> None:
    deployment.at(1)

    def tell(version: int, second_sight: bool) -> None:
        policy = Policy(
            scope="default", section="plan", writer="test", version=version, at_ms=now_ms(),
            body={"second_sight": second_sight},
        )  # fmt: skip
        deployment.send(encode(policy), POLICY, key=b"default/plan/test")
        deployment.flush()

    def twice(query: str) -> None:
        ask(deployment, query, "ann")
        ask(deployment, query, "bob")
        deployment.flush()

    known = set(deployment.outputs.dead)

    def heard_of_policies() -> bool:
        topic = deployment.settings.kafka.topic(POLICY)
        letters = deployment.outputs.dead.items()
        return any(name not in known and letter.source_topic == topic for name, letter in letters)

    tell(2, second_sight=False)
    tell(1, second_sight=True)
    silent = f"asked while it is off {uuid.uuid4().hex}"
    # Nothing acknowledges a policy: a bad one behind them, in the same partition, tells that they were read.
    deployment.send(f"no policy {uuid.uuid4().hex}".encode(), POLICY, key=b"default/plan/test")
    deployment.flush()
    deployment.wait(heard_of_policies, "the dead letter of the bad policy")
    deployment.settle()
    twice(silent)
    deployment.settle()
    assert embedding_command(deployment, silent) is None
    # From here on new queries are asked until one comes through.
    tell(3, second_sight=True)
    heard: list[str] = []

    def answered() -> bool:
        heard.append(f"asked while it is on {uuid.uuid4().hex}")
        twice(heard[-1])
        return any(embedding_command(deployment, query) is not None for query in heard)

    deployment.wait(answered, "a command under the new policy")


def test_rewards_are_taken_and_do_not_count_as_requests(deployment: Deployment) -> None:
    deployment.at(1)
    before = deployment.settle()
    known = set(deployment.outputs.dead)
    topic = deployment.settings.kafka.topic(REWARDS)
    for index in range(10):
        reward = RewardEvent(
            event_id=f"reward-{index}-{uuid.uuid4().hex}", occurred_at_ms=now_ms(), tenant="t",
            query_sha256=query_sha256("q"), reward=0.5, source="judge", reward_model_version="1",
        )  # fmt: skip
        deployment.send(encode(reward), REWARDS, at_ms=reward.occurred_at_ms, partition=0)
    # Nothing acknowledges a reward: a bad one behind them, in the same partition, tells that they were read.
    bad = b'{"schema":"reward_event/1"}'
    deployment.send(bad, REWARDS, partition=0)
    deployment.flush()

    def dead() -> list[int]:
        letters = deployment.outputs.dead.items()
        return [letter.size for name, letter in letters if name not in known and letter.source_topic == topic]

    deployment.wait(lambda: bool(dead()), "the dead letter of the bad reward")
    assert dead() == [len(bad)]
    assert deployment.settle() == before


def test_operators_that_call_native_code_are_alone_in_their_thread(deployment: Deployment) -> None:
    """In a chain with others the encoder waited for ever for a lock that its own thread held."""
    app = deployment.at(1)
    rest = app.rest()
    try:
        vertices = rest.get(f"/jobs/{app.job_id}")["vertices"]
    finally:
        rest.close()
    assert {"embed", "cluster", "focus"} <= {vertex["name"] for vertex in vertices}
