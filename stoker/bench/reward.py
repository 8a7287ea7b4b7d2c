"""Bench `reward`: how long after a reward on llm.rewards its Score insight is read (D6).

The job has nothing else to do: what many events cost a core is bench `pipeline`'s and `latency`'s business. Each answer
is judged again and again, a second apart. The first judgements, which meet a cold job, are left out; what was never
answered lies in the quantiles as what it had waited.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec

from jobs.settings import JobSettings
from schemas import ReplicaSample, RequestEvent, RewardEvent, Score, StackFault, encode
from schemas.canonical import h128, query_sha256
from schemas.topics import INSIGHTS, REQUESTS, REWARDS, TELEMETRY
from stoker.bench.figures import Figure, Report, at_most
from stoker.bench.latency import percentile
from stoker.bench.load import now_ms, producer
from stoker.bench.running_job import Tail, bench_stack, job_settings, running, topic
from stoker.stack.paths import PROJECT

PREFIX = "bench-"
QUERIES = tuple(f"question {index}" for index in range(20))
PER_S = 20
COLD = 200
"""Judgements before those that count."""
DEADLINE_S = 180.0
LAST_SCORES_S = 10.0


def run(events: int = 600) -> Report:
    """Figures reward_to_score_p50_ms and _p99_ms.

    Args:
        events: judgements that count, twenty a second.

    Raises:
        StackFault: the job does not come to scoring.
    """
    report = Report("reward")
    with bench_stack() as stack:
        settings = job_settings(stack, PREFIX)
        with running(stack, "warmup", PROJECT / "jobs" / "warmup.py", settings, 1):
            judging = Judging(settings)
            judging.ask()
            judging.judge(COLD)
            judging.settle(DEADLINE_S)
            if judging.waiting:
                raise StackFault(f"bench reward: {len(judging.waiting)} scores not within {DEADLINE_S:.0f} s")
            judging.lags_ms.clear()
            judging.judge(events)
            judging.settle(LAST_SCORES_S)
            judging.close()
        load = os.getloadavg()[0]
    waited = [now_ms() - judged_ms for judged_ms in judging.waiting.values()]
    lags = sorted([*judging.lags_ms, *waited])
    report.add(Figure("reward_to_score_p50_ms", percentile(lags, 50), "ms"))
    report.add(Figure("reward_to_score_p99_ms", percentile(lags, 99), "ms", goal=at_most(100)))
    report.add(Figure("reward_samples", len(lags)))
    report.add(Figure("reward_unanswered", len(waited)))
    report.add(Figure("load_1min", load))
    return report


@dataclass
class Judging:
    """Asks, judges, and reads what becomes of it.

    Attributes:
        lags_ms: of the scores that were read.
        waiting: when each reward was given whose score was not read yet, by its query and number.
    """

    settings: JobSettings
    lags_ms: list[float] = field(default_factory=list)
    waiting: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._producer = producer(self.settings)
        self._tail = Tail(self.settings.kafka.bootstrap, [topic(self.settings, INSIGHTS)], from_start=False)
        self._given = 0

    def ask(self) -> None:
        """Two users ask each question and get the same answer."""
        for query in QUERIES:
            for user in ("ann", "bob"):
                for event in _request(query, user, now_ms()):
                    self._produce(REQUESTS, encode(event), event.occurred_at_ms)
        self._producer.flush()

    def judge(self, count: int) -> None:
        """Gives so many rewards, and reads scores meanwhile."""
        start = time.monotonic()
        for index in range(count):
            while time.monotonic() < start + index / PER_S:
                self.read()
            at_ms = now_ms()
            if self._given % PER_S == 0:
                sample = ReplicaSample(replica="r0", pool="gpu", incarnation="1", sampled_at_ms=at_ms, state="ready")
                self._produce(TELEMETRY, encode(sample), at_ms)
            turn, place = divmod(self._given, len(QUERIES))
            self.waiting[query_sha256(QUERIES[place]), turn + 1] = at_ms
            self._produce(REWARDS, encode(_reward(QUERIES[place], turn, at_ms)), at_ms)
            self._given += 1

    def settle(self, seconds: float) -> None:
        """Reads until every reward has its score, for so long at most."""
        end = time.monotonic() + seconds
        while self.waiting and time.monotonic() < end:
            self.read()

    def read(self) -> None:
        """Takes the scores that have come."""
        for message in self._tail.poll(0.005):
            if b'"schema":"score/1"' in message.value():
                self.take(msgspec.json.decode(message.value(), type=Score), now_ms())

    def take(self, score: Score, read_ms: int) -> None:
        """One score; only the first after a reward counts."""
        judged_ms = self.waiting.pop((score.query_sha256, score.rewards), None)
        if judged_ms is not None:
            self.lags_ms.append(read_ms - judged_ms)

    def close(self) -> None:
        """Let go of the topics."""
        self._producer.flush()
        del self._producer  # else it looks for the broker that ends now
        self._tail.close()

    def _produce(self, which: Any, value: bytes, at_ms: int) -> None:
        self._producer.produce(topic(self.settings, which), value, timestamp=at_ms)
        self._producer.poll(0)


def _request(query: str, user: str, at_ms: int) -> tuple[RequestEvent, RequestEvent]:
    name, answer = f"{query} {user}", h128(query)
    common: dict[str, Any] = {"request_id": name, "occurred_at_ms": at_ms, "tenant": "t", "user": user}
    common |= {"pool": "gpu", "model": "m", "query": query}
    ended: dict[str, Any] = {"completed_at_ms": at_ms, "status": 200, "finish_reason": "stop"}
    return (
        RequestEvent(event_id=f"{name}-started", phase="started", **common),
        RequestEvent(
            event_id=f"{name}-finished",
            phase="finished",
            response_sha256=answer,
            response_ref=answer,
            **common,
            **ended,
        ),
    )


def _reward(query: str, turn: int, at_ms: int) -> RewardEvent:
    return RewardEvent(
        event_id=f"{query} judged {turn}",
        occurred_at_ms=at_ms,
        tenant="t",
        query_sha256=query_sha256(query),
        response_sha256=h128(query),
        reward=0.9,
        source="judge",
        reward_model_version="1",
    )
