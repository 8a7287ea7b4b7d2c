"""History, leases, ledger, telemetry and settings, each on its own."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path

import pytest

from connectors.configuration import load
from connectors.engines.base import EngineMetrics
from connectors.engines.histogram import Histogram
from connectors.kafka.fake import MemoryBroker, MemoryConsumer, MemoryProducer
from connectors.redis.fake import MemoryLeases, MemoryLedger, MemoryStore
from executor.history import read_since
from executor.leases import LeaseKeeper
from executor.ledger_keeper import LedgerKeeper, latest
from executor.logs import JsonLines
from executor.memory import Published, Recent
from executor.outcomes import Ending, outcome_of
from executor.settings import ExecutorTree
from executor.telemetry import Sampler
from schemas import BrokenConfiguration, OutcomeReason, TransientFault, encode
from schemas.canonical import outcome_id
from schemas.topics import OUTCOMES

HOUR_MS = 3_600_000
COUNT = 300


def outcome(number: int, status: str = "applied", replica: str = "r0"):
    from test_rules import command

    identity = f"{number:032x}"
    return outcome_of(command(command_id=identity), replica, Ending(status, OutcomeReason.DONE), 1)


def test_only_the_young_end_of_a_topic_is_read() -> None:
    broker = MemoryBroker(now_ms=lambda: 20 * HOUR_MS)
    broker.add_topic("t", 2)
    producer = MemoryProducer(broker)
    for number in range(COUNT):
        producer.send("t", str(number).encode(), partition=number % 2, timestamp_ms=number * 10_000)
    since_ms = (COUNT - 30) * 10_000
    values = [int(record.value) for record in read_since(MemoryConsumer(broker), "t", since_ms)]
    assert set(range(COUNT - 30, COUNT)) <= set(values)
    assert len(values) < COUNT * 0.75


async def test_the_ledger_is_rebuilt_from_outcomes_and_again_when_doubted() -> None:
    now_ms = 100 * HOUR_MS
    broker = MemoryBroker(now_ms=lambda: now_ms)
    broker.add_topic(OUTCOMES.name, 2)
    producer = MemoryProducer(broker)
    producer.send(OUTCOMES.name, encode(outcome(1)), key=b"1", timestamp_ms=now_ms - HOUR_MS)
    producer.send(OUTCOMES.name, encode(outcome(1, "resident")), key=b"1", timestamp_ms=now_ms - HOUR_MS)
    producer.send(OUTCOMES.name, encode(outcome(2)), key=b"2", timestamp_ms=now_ms - 7 * HOUR_MS)
    producer.send(OUTCOMES.name, b"{", key=b"2", timestamp_ms=now_ms)
    store = MemoryStore()
    ledger, published = MemoryLedger(store), Published()
    keeper = LedgerKeeper(ledger, published, lambda: MemoryConsumer(broker), OUTCOMES.name, lambda: now_ms, 6)
    assert not keeper.trusted
    await keeper.assured()
    assert await ledger.read(f"{1:032x}", "r0") == "applied"
    assert await ledger.read(f"{2:032x}", "r0") is None, "older than the span"
    assert outcome_id(f"{1:032x}", "r0") in published
    store.wipe()
    await keeper.assured()
    assert await ledger.read(f"{1:032x}", "r0") is None
    keeper.doubt()
    await keeper.assured()
    assert await ledger.read(f"{1:032x}", "r0") == "applied"


def test_applied_is_not_replaced_by_resident_and_the_last_word_counts_otherwise() -> None:
    told = [outcome(1), outcome(1, "resident"), outcome(2, "failed"), outcome(2, "applied")]
    assert [status for _, _, status in latest(told)] == ["applied", "applied"]


async def test_leases_are_taken_kept_and_given_up_in_time() -> None:
    now = [0]
    store = MemoryStore(now_ms=lambda: now[0])
    events: list[str] = []

    def keeper(name: str) -> LeaseKeeper:
        return LeaseKeeper(
            MemoryLeases(store, life_ms=1_000),
            name,
            ["r0"],
            1_000,
            lambda replica: events.append(f"{name} gained {replica}"),
            lambda replica: events.append(f"{name} lost {replica}"),
            lambda: events.append(f"{name} forgotten"),
        )

    one, two = keeper("one"), keeper("two")
    await one.begin()
    await two.begin()
    assert (one.holds("r0"), two.holds("r0")) == (True, False)
    await one.release_all()
    await two._turn()
    assert two.holds("r0")
    store.wipe()
    await two._show_presence()
    await two._turn()
    assert events == ["one gained r0", "one lost r0", "two gained r0", "two forgotten", "two lost r0"]
    store.offline = True
    with pytest.raises(TransientFault):
        await one.begin()


def metrics(prompt_tokens: int, ttft_count: float = 0, sleeping: bool = False) -> EngineMetrics:
    return EngineMetrics(
        running=1,
        waiting=2,
        kv_usage=0.5,
        prefix_query_tokens=prompt_tokens,
        prefix_hit_tokens=0,
        preemptions=0,
        rejections=0,
        prompt_tokens=prompt_tokens,
        sleeping=sleeping,
        blocks_total=100,
        block_tokens=32,
        ttft_s=Histogram((0.1, math.inf), (ttft_count, ttft_count)),
    )


def test_samples_tell_state_incarnation_and_the_heartbeat_of_a_lost_engine() -> None:
    sampler = Sampler("r0", "gpu", "rack 7")
    assert sampler.sample(None, 1, None).state == "starting"
    first = sampler.sample(metrics(100), 2, 1.5)
    assert (first.state, first.block_tokens, first.allocations_per_s) == ("ready", 32, 1.5)
    assert sampler.sample(metrics(200, sleeping=True), 3, None).state == "sleeping"
    lost = sampler.sample(None, 4, None)
    assert (lost.state, lost.incarnation, lost.sampled_at_ms, lost.block_tokens) == ("lost", first.incarnation, 4, 32)
    again = sampler.sample(metrics(5), 5, None)
    assert again.incarnation > first.incarnation
    assert (first.zone, lost.zone) == ("rack 7", "rack 7")


def test_first_token_times_are_those_of_the_last_samples() -> None:
    sampler = Sampler("r0", "gpu")
    sampler.sample(metrics(1, ttft_count=10), 1, None)
    assert sampler.sample(metrics(2, ttft_count=10), 2, None).ttft_p50_ms is None
    assert sampler.sample(metrics(3, ttft_count=20), 3, None).ttft_p50_ms == pytest.approx(50)


def test_recent_forgets_the_oldest() -> None:
    recent: Recent[str, int] = Recent(2)
    for name in ("a", "b", "a", "c"):
        recent.put(name, 1)
    assert ("a" in recent, "b" in recent, len(recent)) == (True, False, 2)
    assert (recent.pop("a"), recent.get("a")) == (1, None)


def test_settings_name_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "stoker.toml"
    file.write_text("[executor]\nconcurency = 3\n[warmup]\nshards = 1\n")
    with pytest.raises(BrokenConfiguration, match=r"concurency.*did you mean executor.concurrency"):
        load(ExecutorTree, file)
    twice = '[[executor.engines]]\nname = "r0"\nurl = "http://x"\npool = "gpu"\n' * 2
    file.write_text(twice)
    with pytest.raises(BrokenConfiguration, match="twice"):
        load(ExecutorTree, file)
    file.write_text(twice[: len(twice) // 2] + '[executor.salts]\nacme = { main = { env = "ACME_SALT" } }\n')
    tree = load(ExecutorTree, file)
    assert tree.pools == ("gpu", "redis:main")
    assert tree.executor.engine_pools == ("gpu",)
    assert tree.executor.salts["acme"]["main"].env == "ACME_SALT"


def test_a_log_line_is_json_with_its_fields() -> None:
    record = logging.LogRecord("executor", logging.INFO, "f", 1, "outcome %s", ("x",), None)
    record.fields = {"status": "applied", "error": None}
    line = json.loads(JsonLines().format(record))
    assert (line["message"], line["status"], "error" in line) == ("outcome x", "applied", False)
