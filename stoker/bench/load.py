"""The load of bench `latency`: background events, queries that are asked for twice, and prefixes that become hot.

Everything comes at a steady rate and is stamped with the wall clock as it is sent. What is asked for is new each time:
only so does every probe cost a command.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from jobs.settings import JobSettings
from schemas import Render, ReplicaSample, RequestEvent, Segment, encode
from schemas.canonical import query_sha256, root_hash, segment_hash
from schemas.topics import REQUESTS, TELEMETRY
from stoker.bench.running_job import confluent, topic
from stoker.bench.workload import Workload

PROBE = "probe"
"""Tenant, and scope, of the probes."""
PROBES_PER_S = 20
PREFIXES_PER_S = 2
"""How often the prefix of the present slide is asked for."""
PREFIX_SEGMENTS = 4
SEGMENT_TOKENS = 128
REPLICAS = ("r0", "r1")
_TEMPLATE = "a" * 32
_MODEL = "m"


def now_ms() -> int:
    """Wall time."""
    return time.time_ns() // 1_000_000


def producer(settings: JobSettings) -> Any:
    """A Kafka producer that does not wait for company."""
    return confluent().Producer({"bootstrap.servers": settings.kafka.bootstrap, "linger.ms": 0})


@dataclass
class Load:
    """Feeds until it is told to stop; use it as a context.

    Attributes:
        rate_per_s: background events.
        asked_ms: when each probe was asked for the second time, by its hash; the reader takes out what it has seen.
    """

    settings: JobSettings
    rate_per_s: int
    asked_ms: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._producer = producer(self.settings)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="load")
        self._slide_ms = self.settings.scaled(self.settings.warmup.pane_ms)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the load; what was asked for may still be answered."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._producer.flush()

    def _feed(self) -> None:
        workload, start, index = Workload(), time.monotonic(), 0
        waiting: list[str] = []
        while not self._stop.is_set():
            while (ahead := start + index / self.rate_per_s - time.monotonic()) > 0:
                self._producer.poll(0)
                time.sleep(min(ahead, 0.001))
            at_ms = now_ms()
            self._send(workload.event(at_ms))
            if index % (self.rate_per_s // PROBES_PER_S) == 0:
                waiting.append(f"probe {index} is asked for by two users")
                self._send(_question(waiting[-1], "ann", at_ms))
                if len(waiting) > PROBES_PER_S:
                    query = waiting.pop(0)
                    self.asked_ms[query_sha256(query)] = at_ms
                    self._send(_question(query, "bob", at_ms))
            if index % (self.rate_per_s // PREFIXES_PER_S) == 0:
                self._send(_prompt(at_ms // self._slide_ms, index, at_ms))
            if index % self.rate_per_s == 0:
                self._heartbeat(at_ms)
            index += 1

    def _send(self, event: RequestEvent) -> None:
        self._producer.produce(topic(self.settings, REQUESTS), encode(event), timestamp=event.occurred_at_ms)

    def _heartbeat(self, at_ms: int) -> None:
        for replica in REPLICAS:
            sample = ReplicaSample(replica=replica, pool="gpu", incarnation="1", sampled_at_ms=at_ms, state="ready")
            self._producer.produce(topic(self.settings, TELEMETRY), encode(sample), key=replica, timestamp=at_ms)


def _question(query: str, user: str, at_ms: int) -> RequestEvent:
    name = f"{query} {user}"
    return RequestEvent(
        event_id=name,
        request_id=name,
        phase="started",
        occurred_at_ms=at_ms,
        tenant=PROBE,
        user=user,
        pool="gpu",
        model=_MODEL,
        query=query,
    )


def _prompt(slide: int, number: int, at_ms: int) -> RequestEvent:
    """A request for the prefix of a slide."""
    parent, segments = root_hash(_MODEL, None, _TEMPLATE, ""), []
    for depth in range(PREFIX_SEGMENTS):
        parent = segment_hash(parent, "user", f"slide {slide} segment {depth}")
        segments.append(Segment(hash=parent, tokens=SEGMENT_TOKENS, role="user"))
    name = f"prefix {number}"
    return RequestEvent(
        event_id=name,
        request_id=name,
        phase="started",
        occurred_at_ms=at_ms,
        tenant=PROBE,
        user=f"user-{number}",
        pool="gpu",
        model=_MODEL,
        query=name,
        segments=tuple(segments),
        render=Render(template_sha=_TEMPLATE, tools_sha=""),
        input_tokens=PREFIX_SEGMENTS * SEGMENT_TOKENS,
    )
