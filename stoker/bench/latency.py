"""Bench `latency`: 1,000 events a second for a while, and how long a command takes.

Fast lane: from the moment at which a query is asked for the second time until its command is read from
warmup.commands. Tick lane: from the moment at which event time may say that a slide is over (its end plus the
out-of-orderness of the source) until the first command is read that was planned in the two ticks after it. Executor:
from the moment at which the broker took the command to its outcome's `finished_at_ms`.

Measuring begins when the job has caught up with what heaped up while it was cold (JIT, first model call, first
connections): half a minute at least, and then as soon as two seconds of probes in a row were answered quickly. How long
that took is a figure, and so is what was not answered at all; both lie in the quantiles as what they had waited.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import msgspec

from jobs.settings import JobSettings
from schemas import Embedding, Policy, WarmupCommand, WarmupOutcome, encode
from schemas.policy import Section
from schemas.topics import COMMANDS, OUTCOMES, POLICY
from stoker.bench.figures import Figure, Report, at_most
from stoker.bench.load import PROBE, PROBES_PER_S, Load, now_ms, producer
from stoker.bench.running_job import Tail, bench_stack, job_settings, running, stamp_when_written, topic
from stoker.stack import ports
from stoker.stack.paths import PROJECT
from stoker.stack.process import Process
from stoker.stack.stack import Stack

RATE_PER_S = 1_000
WARM_UP_S = 30.0
WARM_UP_LIMIT_S = 180.0
CALM_MS = 1_000
CALM_PROBES = 2 * PROBES_PER_S
LAST_ANSWERS_S = 10.0
"""How long answers are waited for after the last event."""
PREFIX = "bench-"


@dataclass
class Measured:
    """Latencies in ms, and what is needed to find them.

    Attributes:
        begin_ms: what was asked for before is left out; 0 while the job is warming up.
        recent: of the last probes, to see when it is warm.
    """

    begin_ms: int = 0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=CALM_PROBES))
    fast: list[float] = field(default_factory=list)
    unanswered: int = 0
    slides: dict[tuple[str, int], float] = field(default_factory=dict)
    written_ms: dict[str, int] = field(default_factory=dict)
    applied: list[float] = field(default_factory=list)


def run(events: int = 60_000) -> Report:
    """Figures event_to_command_p50_ms and _p99_ms, slide_to_command_p99_ms, command_to_redis_p50_ms and _p99_ms.

    Args:
        events: background events that are sent, at 1,000 a second, once the job is warm.
    """
    report = Report("latency")
    with bench_stack() as stack:
        settings = job_settings(stack, PREFIX)
        settings = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"linger_ms": 2})})
        stamp_when_written(settings, COMMANDS)
        _tell_policies(settings)
        with running(stack, "warmup", PROJECT / "jobs" / "warmup.py", settings, 1), _executor(stack):
            warm_up_s, measured = measure(settings, events / RATE_PER_S)
        load = os.getloadavg()[0]
    fast, slides, applied = sorted(measured.fast), sorted(measured.slides.values()), sorted(measured.applied)
    report.add(Figure("event_to_command_p50_ms", percentile(fast, 50), "ms"))
    report.add(Figure("event_to_command_p99_ms", percentile(fast, 99), "ms", goal=at_most(100)))
    report.add(Figure("slide_to_command_p99_ms", percentile(slides, 99), "ms", goal=at_most(1_500)))
    report.add(Figure("command_to_redis_p50_ms", percentile(applied, 50), "ms"))
    report.add(Figure("command_to_redis_p99_ms", percentile(applied, 99), "ms", goal=at_most(50)))
    for name, samples in (("fast_samples", fast), ("slide_samples", slides), ("applied_samples", applied)):
        report.add(Figure(name, len(samples)))
    report.add(Figure("fast_unanswered", measured.unanswered))
    report.add(Figure("warm_up_s", warm_up_s, "s"))
    report.add(Figure("load_1min", load))
    return report


def percentile(ordered: list[float], share: int) -> float:
    """A percentile of sorted samples; NaN of none, which keeps no goal."""
    if len(ordered) < 2:
        return ordered[0] if ordered else float("nan")
    return statistics.quantiles(ordered, n=100, method="inclusive")[share - 1]


def measure(settings: JobSettings, seconds: float) -> tuple[float, Measured]:
    """Loads the running job; returns how long it took to be warm, in seconds, and what the time after that showed."""
    measured = Measured()
    tail = Tail(settings.kafka.bootstrap, [topic(settings, COMMANDS), topic(settings, OUTCOMES)], from_start=False)
    start = time.monotonic()
    with Load(settings, RATE_PER_S) as load:
        while not _warm(measured, time.monotonic() - start):
            _read(tail, settings, load, measured)
        warm_up_s = time.monotonic() - start
        measured.begin_ms = now_ms()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            _read(tail, settings, load, measured)
        load.stop()
        end = time.monotonic() + LAST_ANSWERS_S
        while time.monotonic() < end:
            _read(tail, settings, load, measured)
        waited = [now_ms() - asked_ms for asked_ms in load.asked_ms.values() if asked_ms >= measured.begin_ms]
    tail.close()
    measured.unanswered = len(waited)
    measured.fast += waited
    return warm_up_s, measured


def _warm(measured: Measured, seconds: float) -> bool:
    calm = len(measured.recent) == CALM_PROBES and max(measured.recent) < CALM_MS
    return (calm and seconds >= WARM_UP_S) or seconds >= WARM_UP_LIMIT_S


def _read(tail: Tail, settings: JobSettings, load: Load, measured: Measured) -> None:
    for message in tail.poll(0.005):
        read_ms = now_ms()
        if message.topic() == topic(settings, COMMANDS):
            command = msgspec.json.decode(message.value(), type=WarmupCommand)
            _take(measured, settings, load, command, read_ms)
            if measured.begin_ms:
                measured.written_ms.setdefault(command.command_id, message.timestamp()[1])
        else:
            outcome = msgspec.json.decode(message.value(), type=WarmupOutcome)
            written_ms = measured.written_ms.pop(outcome.command_id, None)
            if written_ms is not None and outcome.status in ("applied", "resident"):
                measured.applied.append(outcome.finished_at_ms - written_ms)


def _take(measured: Measured, settings: JobSettings, load: Load, command: WarmupCommand, read_ms: int) -> None:
    if command.lane == "fast" and isinstance(command.target, Embedding):
        asked_ms = load.asked_ms.pop(command.target.query_sha256, None)
        if asked_ms is not None:
            measured.recent.append(read_ms - asked_ms)
            if measured.begin_ms and asked_ms >= measured.begin_ms:
                measured.fast.append(read_ms - asked_ms)
    elif command.lane == "tick" and measured.begin_ms:
        slide_ms = settings.scaled(settings.warmup.pane_ms)
        tick_ms = settings.planning().scaled_tick_ms
        since_ms = command.issued_at_ms % slide_ms
        place = (command.pool, command.issued_at_ms - since_ms)
        over_ms = place[1] + settings.timing.out_of_orderness_ms
        if since_ms <= 2 * tick_ms and over_ms >= measured.begin_ms and place not in measured.slides:
            measured.slides[place] = read_ms - over_ms


def _tell_policies(settings: JobSettings) -> None:
    """The background may embed little, the probes all they want: the model's own speed is bench `embed`'s business."""
    sender = producer(settings)
    bodies: list[tuple[str, Section, dict[str, str | int | float | bool | None]]] = [
        ("*", "budget", {"embeds_per_s": 1.0, "embeds_burst": 1.0}),
        (PROBE, "budget", {"embeds_per_s": 1_000.0, "embeds_burst": 1_000.0}),
        (PROBE, "quota", {"share": 0.9}),
    ]
    for scope, section, body in bodies:
        policy = Policy(scope=scope, section=section, writer="bench", version=1, at_ms=now_ms(), body=body)
        sender.produce(topic(settings, POLICY), encode(policy), key=f"{scope}/{section}/bench")
    sender.flush()


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
