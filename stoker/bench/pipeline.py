"""Bench `pipeline`: a topic full of requests through the job `warmup`, beside a job that only passes them on.

Each round runs both, on the same broker and the same records, and the pass-through once more with what Stoker's job
does to cost PyFlink less. A rate is taken between the moments when 10 % and when 95 % of the records were through the
keyed operator, so that the start of a JVM does not count. The job's reading and ingest have an interpreter of their own
(`warmup.ingest_apart`), so that it too has use for both cores of a small machine, as the pass-through with its next to
no Python has anyhow.

Every operator has work: a tenth of the tenants has its sessions and managed prompts looked at, one request in a hundred
is judged.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from jobs import metrics
from jobs.settings import JobSettings, WarmupSettings
from schemas import Policy, ReplicaSample, RewardEvent, StackFault, encode
from schemas.canonical import query_sha256
from schemas.topics import COMMANDS, POLICY, REQUESTS, REWARDS, TELEMETRY
from stoker.bench.baseline import passthrough
from stoker.bench.figures import Figure, Report, at_least
from stoker.bench.running_job import (
    Gauge,
    bench_stack,
    confluent,
    job_settings,
    running,
    stack_redis,
    topic,
    until,
    written,
)
from stoker.bench.workload import Workload
from stoker.stack.flink_config import LATER_C2, FlinkConfig
from stoker.stack.paths import PROJECT
from stoker.stack.stack import Stack
from stoker.stack.topics import create_topics

ROUNDS = 3
EVENTS_PER_S = 5_000
"""In event time: so many events fill a pane of 10 s with 50,000."""
EMBEDS_PER_S = 1.0
"""Of each of 50 scopes in event time: about 1 % of the events are embedded."""
HOUR_MS = 3_600_000
"""Preloaded events are old: neither the embedder nor the planner may hold that against them."""
FROM, TO = 0.10, 0.95
WATCHED = frozenset(f"tenant-{number:02d}" for number in range(5, 50, 10))
"""Tenants whose sessions and managed prompts are looked at."""
REWARD_EVERY = 100
"""Requests."""
PAUSE_S = 5.0
"""Between two looks at the job's metrics: a page of them costs a core some 20 ms, and nothing else is looked at: what
watches the job works on the same two cores."""
DEADLINE_S = 900.0


@dataclass
class Preload:
    """What lies in the topic of requests."""

    events: int
    bytes: int
    last_ms: int


def run(events: int = 500_000, rounds: int = ROUNDS) -> Report:
    """Figures events_per_s, limit_ratio, tuned_limit_ratio, event_bytes, embedded_share and commands.

    Args:
        events: preloaded; docs/benchmarks.md tells how many a figure is of.
        rounds: of both jobs, interleaved.
    """
    report = Report("pipeline")
    with bench_stack() as stack:
        warmup = WarmupSettings(embed_stale_ms=HOUR_MS, pattern_scopes=WATCHED, prompt_scopes=WATCHED)
        settings = job_settings(stack, "bench-", warmup)
        apart = settings.model_copy(update={"warmup": warmup.model_copy(update={"ingest_apart": True})})
        create_topics(stack.kafka.bootstrap, "bench-", topics=(passthrough.OUT,))
        preload = fill(settings, events)
        rates, limits, tuned = [], [], []
        outputs: dict[str, int] = {}
        for turn in range(rounds):
            limits.append(_passthrough(stack, settings, preload, f"passthrough-{turn}"))
            tuned.append(_passthrough(stack, settings, preload, f"tuned-{turn}", "--tuned"))
            rate, outputs = _warmup(stack, apart, preload, turn)
            rates.append(rate)
    rate, limit = statistics.median(rates), statistics.median(limits)
    report.add(Figure("events_per_s", rate, "events/s", goal=at_least(20_000)))
    report.add(Figure("limit_ratio", rate, "events/s", baseline=limit, goal=at_least(0.6, of="ratio")))
    report.add(Figure("tuned_limit_ratio", rate, "events/s", baseline=statistics.median(tuned)))
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
        event = workload.event(at_ms)
        record = encode(event)
        total += len(record)
        producer.produce(topic(settings, REQUESTS), record, timestamp=at_ms)
        if index % REWARD_EVERY == 0:
            reward = RewardEvent(
                event_id=f"reward-{index}", occurred_at_ms=at_ms, tenant=event.tenant,
                query_sha256=query_sha256(event.query or ""), reward=index // REWARD_EVERY % 10 / 9,
                source="reward_model", reward_model_version="1",
            )  # fmt: skip
            producer.produce(topic(settings, REWARDS), encode(reward), timestamp=at_ms)
        if index % EVENTS_PER_S == 0:
            for replica in ("r0", "r1"):
                sample = ReplicaSample(replica=replica, pool="gpu", incarnation="1", sampled_at_ms=at_ms, state="ready")
                producer.produce(topic(settings, TELEMETRY), encode(sample), key=replica, timestamp=at_ms)
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


def _rate(gauge: Gauge, events: int) -> float:
    """Events per second between two shares of what an operator takes."""
    inside: list[tuple[float, int]] = []

    def through() -> bool:
        taken, at_s = gauge.read(), time.monotonic()
        if taken >= FROM * events:
            inside.append((at_s, taken))
        time.sleep(PAUSE_S)
        return taken >= TO * events

    until(through, "the job", DEADLINE_S)
    (start_s, first), (end_s, last) = inside[0], inside[-1]
    if len(inside) < 3:
        raise StackFault(f"bench: {events} events were through before they could be watched; take more with --events")
    return (last - first) / (end_s - start_s)


def _passthrough(stack: Stack, settings: JobSettings, preload: Preload, name: str, *flags: str) -> float:
    # Without C2 it would be slower by a third: nearly all that it does is Java.
    cluster = FlinkConfig(compiler=LATER_C2)
    with running(stack, name, Path(passthrough.__file__), settings, 1, flags, cluster) as app:
        return _rate(Gauge(app, "count"), preload.events)


def _warmup(stack: Stack, settings: JobSettings, preload: Preload, turn: int) -> tuple[float, dict[str, int]]:
    bootstrap, commands = settings.kafka.bootstrap, topic(settings, COMMANDS)
    before = written(bootstrap, commands)
    with stack_redis(stack) as redis:
        redis.flushall()
        with running(stack, f"warmup-{turn}", PROJECT / "jobs" / "warmup.py", settings, 1) as app:
            rate = _rate(Gauge(app, "demand", metrics.FACTS), preload.events)
        vectors = sum(1 for _ in redis.scan_iter("stoker:*:vec:*", count=10_000))
    return rate, {"commands": written(bootstrap, commands) - before, "embedded": vectors}
