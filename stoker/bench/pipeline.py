"""Bench `pipeline`: a topic full of requests through the job `warmup`, beside a job that only passes them on.

Each round runs both, on the same broker and the same records. A rate is taken between the moments when 10 % and when
95 % of the records were through, so that neither the start of a JVM nor the wait for the last watermark counts. What
`warmup` has done is told by its accounting, the baseline by what it has written; the clock is the broker's, at append.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from jobs.settings import JobSettings, WarmupSettings
from schemas import Accounting, Policy, encode
from schemas.topics import COMMANDS, INSIGHTS, POLICY, REQUESTS
from stoker.bench import passthrough
from stoker.bench.figures import Figure, Report, at_least
from stoker.bench.running_job import (
    Tail,
    append_time,
    bench_stack,
    confluent,
    job_settings,
    running,
    stack_redis,
    topic,
    until,
)
from stoker.bench.workload import Workload
from stoker.stack.paths import PROJECT
from stoker.stack.stack import Stack
from stoker.stack.topics import create_topics

ROUNDS = 5
EVENTS_PER_S = 5_000
"""In event time: so many events fill a pane of 10 s with 50,000."""
EMBEDS_PER_S = 1.0
"""Of each of 50 scopes in event time: about 1 % of the events are embedded."""
HOUR_MS = 3_600_000
"""Preloaded events are old: neither the embedder nor the planner may hold that against them."""
FROM, TO = 0.10, 0.95
DEADLINE_S = 900.0


@dataclass
class Preload:
    """What lies in the topic of requests."""

    events: int
    bytes: int
    last_ms: int


def run(events: int = 100_000, rounds: int = ROUNDS) -> Report:
    """Figures events_per_s, limit_ratio, event_bytes, embedded_share and commands.

    Args:
        events: preloaded; 500,000 for the figure that is published.
        rounds: of both jobs, interleaved.
    """
    report = Report("pipeline")
    with bench_stack() as stack:
        settings = job_settings(stack, "bench-", WarmupSettings(embed_stale_ms=HOUR_MS))
        create_topics(stack.kafka.bootstrap, "bench-", topics=(passthrough.OUT,))
        append_time(stack.kafka.bootstrap, [topic(settings, INSIGHTS), topic(settings, passthrough.OUT)])
        preload = fill(settings, events)
        rates: list[float] = []
        limits: list[float] = []
        outputs: dict[str, int] = {}
        for turn in range(rounds):
            limits.append(_passthrough(stack, settings, preload, turn))
            rate, outputs = _warmup(stack, settings, preload, turn)
            rates.append(rate)
    rate, limit = statistics.median(rates), statistics.median(limits)
    report.add(Figure("events_per_s", rate, "events/s", goal=at_least(20_000)))
    report.add(Figure("limit_ratio", rate, "events/s", baseline=limit, goal=at_least(0.6, of="ratio")))
    report.add(Figure("event_bytes", preload.bytes / preload.events, "bytes"))
    report.add(Figure("embedded_share", outputs["embedded"] / events))
    report.add(Figure("commands", outputs["commands"], "commands"))
    return report


def fill(settings: JobSettings, events: int) -> Preload:
    """Writes the events, the last one stamped about now, and policies under which old events are still planned for."""
    producer = confluent().Producer(
        {
            "bootstrap.servers": settings.kafka.bootstrap,
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    start_ms = time.time_ns() // 1_000_000 - events * 1000 // EVENTS_PER_S
    workload, total = Workload(), 0
    for index in range(events):
        at_ms = start_ms + index * 1000 // EVENTS_PER_S
        record = workload.record(at_ms)
        total += len(record)
        producer.produce(topic(settings, REQUESTS), record, timestamp=at_ms)
        if index % 10_000 == 0:
            producer.poll(0)
    bodies = {
        "plan": {"prefix_life_ms": HOUR_MS, "embedding_life_ms": HOUR_MS},
        "budget": {"embeds_per_s": EMBEDS_PER_S, "embeds_burst": 1.0},
    }
    for section, body in bodies.items():
        policy = Policy(scope="*", section=section, writer="bench", version=1, at_ms=start_ms, body=body)  # type: ignore[arg-type]
        producer.produce(topic(settings, POLICY), encode(policy), key=f"*/{section}/bench", timestamp=start_ms)
    producer.flush()
    return Preload(events, total, at_ms)


def _rate(events: int, progress: list[tuple[int, int]]) -> float:
    """Events per second between two shares of progress.

    Args:
        progress: (ms, events through), in order.
    """
    inside = [(ms, done) for ms, done in progress if FROM * events <= done <= TO * events]
    (start_ms, first), (end_ms, last) = inside[0], inside[-1]
    return (last - first) * 1000 / (end_ms - start_ms)


def _passthrough(stack: Stack, settings: JobSettings, preload: Preload, turn: int) -> float:
    tail = Tail(settings.kafka.bootstrap, [topic(settings, passthrough.OUT)], from_start=False)
    appended: list[int] = []

    def through() -> bool:
        appended.extend(message.timestamp()[1] for message in tail.poll())
        return len(appended) >= preload.events

    with running(stack, f"passthrough-{turn}", Path(passthrough.__file__), settings, 1):
        until(through, "the baseline", DEADLINE_S)
    tail.close()
    return _rate(preload.events, [(ms, index + 1) for index, ms in enumerate(sorted(appended))])


def _warmup(stack: Stack, settings: JobSettings, preload: Preload, turn: int) -> tuple[float, dict[str, int]]:
    names = [topic(settings, INSIGHTS), topic(settings, COMMANDS)]
    tail = Tail(settings.kafka.bootstrap, names, from_start=False)
    shards: dict[int, int] = {}
    progress: list[tuple[int, int]] = []
    commands = 0

    def through() -> bool:
        nonlocal commands
        for message in tail.poll():
            value = message.value()
            if message.topic() == names[1]:
                commands += 1
            elif b'"schema":"accounting/1"' in value:
                told = msgspec.json.decode(value, type=Accounting)
                shards[told.shard] = max(shards.get(told.shard, 0), told.revision)
                progress.append((message.timestamp()[1], sum(shards.values())))
        return bool(progress) and progress[-1][1] >= TO * preload.events

    with stack_redis(stack) as redis:
        redis.flushall()
        with running(stack, f"warmup-{turn}", PROJECT / "jobs" / "warmup.py", settings, 1):
            until(through, "the job", DEADLINE_S)
        vectors = sum(1 for _ in redis.scan_iter("stoker:*:vec:*", count=10_000))
    tail.close()
    return _rate(preload.events, sorted(progress)), {"commands": commands, "embedded": vectors}
