"""Bench `latency`: 1,000 events a second for a while, and how long a command takes.

Fast lane: from the moment at which a query is asked for the second time until its command is read from
warmup.commands. Tick lane: from the moment at which event time may say that a slide is over (its end plus the
out-of-orderness of the source) until the first command is read that was planned in the two ticks after it. Executor:
from the command's record time to its outcome's `finished_at_ms`. Time runs ten times as fast as the calendar, so that
there are enough slides; nothing in the fast lane and in the executor depends on that.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from jobs.settings import JobSettings
from schemas import Embedding, Policy, ReplicaSample, RequestEvent, WarmupCommand, WarmupOutcome, encode
from schemas.canonical import query_sha256
from schemas.policy import Section
from schemas.topics import COMMANDS, OUTCOMES, POLICY, REQUESTS, TELEMETRY
from stoker.bench.figures import Figure, Report, at_most
from stoker.bench.running_job import Tail, bench_stack, confluent, job_settings, running, topic
from stoker.bench.workload import Workload
from stoker.stack import ports
from stoker.stack.paths import PROJECT
from stoker.stack.process import Process
from stoker.stack.stack import Stack

RATE_PER_S = 1_000
PROBES_PER_S = 20
TIME_SCALE = 10.0
WARM_UP_S = 8.0
"""Left out at the beginning: JIT, first model call, first connections."""
REPLICAS = ("r0", "r1")
PREFIX = "bench-"


@dataclass
class Measured:
    """Latencies in ms, and what is needed to find them."""

    asked_ms: dict[str, int] = field(default_factory=dict)
    fast: list[float] = field(default_factory=list)
    slides: dict[tuple[str, int], float] = field(default_factory=dict)
    written_ms: dict[str, int] = field(default_factory=dict)
    applied: list[float] = field(default_factory=list)


def run(events: int = 30_000) -> Report:
    """Figures event_to_command_p50_ms and _p99_ms, slide_to_command_p99_ms, command_to_redis_p99_ms.

    Args:
        events: sent at 1,000 a second after the first eight seconds.
    """
    report = Report("latency")
    with bench_stack() as stack:
        settings = job_settings(stack, PREFIX, time_scale=TIME_SCALE)
        settings = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"linger_ms": 2})})
        _tell_policies(settings)
        with running(stack, "warmup", PROJECT / "jobs" / "warmup.py", settings, 1), _executor(stack):
            measured = _measure(settings, WARM_UP_S + events / RATE_PER_S)
    fast, slides, applied = sorted(measured.fast), sorted(measured.slides.values()), sorted(measured.applied)
    report.add(Figure("event_to_command_p50_ms", percentile(fast, 50), "ms"))
    report.add(Figure("event_to_command_p99_ms", percentile(fast, 99), "ms", goal=at_most(100)))
    report.add(Figure("slide_to_command_p99_ms", percentile(slides, 99), "ms", goal=at_most(1_500)))
    report.add(Figure("command_to_redis_p50_ms", percentile(applied, 50), "ms"))
    report.add(Figure("command_to_redis_p99_ms", percentile(applied, 99), "ms", goal=at_most(50)))
    for name, samples in (("fast_samples", fast), ("slide_samples", slides), ("applied_samples", applied)):
        report.add(Figure(name, len(samples)))
    return report


def percentile(ordered: list[float], share: int) -> float:
    """A percentile of sorted samples; NaN of none, which keeps no goal."""
    if len(ordered) < 2:
        return ordered[0] if ordered else float("nan")
    return statistics.quantiles(ordered, n=100, method="inclusive")[share - 1]


def _producer(settings: JobSettings) -> Any:
    return confluent().Producer({"bootstrap.servers": settings.kafka.bootstrap, "linger.ms": 0})


def _tell_policies(settings: JobSettings) -> None:
    """The background may embed little, the probes all they want: the model's own speed is bench `embed`'s business."""
    producer = _producer(settings)
    bodies: list[tuple[str, Section, dict[str, str | int | float | bool | None]]] = [
        ("*", "budget", {"embeds_per_s": 1.0, "embeds_burst": 1.0}),
        ("probe", "budget", {"embeds_per_s": 1_000.0, "embeds_burst": 1_000.0}),
        ("probe", "quota", {"share": 0.9}),
    ]
    for scope, section, body in bodies:
        policy = Policy(scope=scope, section=section, writer="bench", version=1, at_ms=_now_ms(), body=body)
        producer.produce(topic(settings, POLICY), encode(policy), key=f"{scope}/{section}/bench")
    producer.flush()


@contextmanager
def _executor(stack: Stack) -> Iterator[None]:
    """An executor for the Redis pool."""
    port = ports.free_port()
    process = Process("executor", stack.state)
    environment = {
        "PYTHONPATH": str(PROJECT),
        "STOKER_KAFKA__BOOTSTRAP": stack.kafka.bootstrap,
        "STOKER_KAFKA__TOPIC_PREFIX": PREFIX,
        "STOKER_REDIS__URL": stack.redis.url,
        "STOKER_EXECUTOR__ADMIN_PORT": str(port),
    }
    process.start([sys.executable, "-m", "executor"], environment)

    def ready() -> bool:
        try:
            url = f"http://{ports.LOOPBACK}:{port}/readyz"
            return httpx.get(url, timeout=2.0, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    try:
        process.wait_ready(ready, 120.0)
        yield
    finally:
        process.stop()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _feed(settings: JobSettings, measured: Measured, seconds: float) -> None:
    """The load: background events, probes asked for twice a second apart, and a heartbeat of two replicas."""
    producer, workload = _producer(settings), Workload()
    start = time.monotonic()
    begin = start + WARM_UP_S
    first_asked: list[str] = []
    for index in range(int(seconds * RATE_PER_S)):
        due = start + index / RATE_PER_S
        while (ahead := due - time.monotonic()) > 0:
            producer.poll(0)
            time.sleep(min(ahead, 0.001))
        at_ms = _now_ms()
        producer.produce(topic(settings, REQUESTS), workload.record(at_ms), timestamp=at_ms)
        if index % (RATE_PER_S // PROBES_PER_S) == 0:
            first_asked.append(f"probe {index} is asked for by two users")
            _ask(producer, settings, first_asked[-1], "ann")
            if len(first_asked) > PROBES_PER_S:
                query = first_asked[-1 - PROBES_PER_S]
                if time.monotonic() > begin:
                    measured.asked_ms[query_sha256(query)] = _now_ms()
                _ask(producer, settings, query, "bob")
        if index % RATE_PER_S == 0:
            for replica in REPLICAS:
                sample = ReplicaSample(replica=replica, pool="gpu", incarnation="1", sampled_at_ms=at_ms, state="ready")
                producer.produce(topic(settings, TELEMETRY), encode(sample), key=replica, timestamp=at_ms)
    producer.flush()


def _ask(producer: Any, settings: JobSettings, query: str, user: str) -> None:
    now_ms = _now_ms()
    event = RequestEvent(
        event_id=f"{query} {user}",
        request_id=f"{query} {user}",
        phase="started",
        occurred_at_ms=now_ms,
        tenant="probe",
        user=user,
        pool="gpu",
        model="m",
        query=query,
    )
    producer.produce(topic(settings, REQUESTS), encode(event), timestamp=now_ms)
    producer.poll(0)


def _measure(settings: JobSettings, seconds: float) -> Measured:
    measured = Measured()
    tail = Tail(settings.kafka.bootstrap, [topic(settings, COMMANDS), topic(settings, OUTCOMES)], from_start=False)
    feeder = threading.Thread(target=_feed, args=(settings, measured, seconds))
    begin_ms = _now_ms() + int(WARM_UP_S * 1000)
    feeder.start()
    end = time.monotonic() + seconds + 3.0
    while time.monotonic() < end:
        for message in tail.poll(0.005):
            read_ms = _now_ms()
            if message.topic() == topic(settings, COMMANDS):
                command = msgspec.json.decode(message.value(), type=WarmupCommand)
                if read_ms >= begin_ms:
                    _take(measured, settings, command, read_ms)
                    measured.written_ms.setdefault(command.command_id, message.timestamp()[1])
            else:
                outcome = msgspec.json.decode(message.value(), type=WarmupOutcome)
                written_ms = measured.written_ms.get(outcome.command_id)
                if outcome.status in ("applied", "resident") and written_ms is not None:
                    measured.applied.append(outcome.finished_at_ms - written_ms)
    feeder.join()
    tail.close()
    return measured


def _take(measured: Measured, settings: JobSettings, command: WarmupCommand, read_ms: int) -> None:
    if command.lane == "fast" and isinstance(command.target, Embedding):
        asked_ms = measured.asked_ms.pop(command.target.query_sha256, None)
        if asked_ms is not None:
            measured.fast.append(read_ms - asked_ms)
    elif command.lane == "tick":
        slide_ms = settings.scaled(settings.warmup.pane_ms)
        tick_ms = settings.planning().scaled_tick_ms
        since_ms = command.issued_at_ms % slide_ms
        place = (command.pool, command.issued_at_ms - since_ms)
        if since_ms <= 2 * tick_ms and place not in measured.slides:
            measured.slides[place] = read_ms - (place[1] + settings.timing.out_of_orderness_ms)
