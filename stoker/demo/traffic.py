"""The gateway of a demo in a process of its own, so that nothing that reads topics or draws delays what it measures."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from connectors.kafka.producer import KafkaRecordProducer
from schemas import RequestEvent, StackFault, StokerError, encode
from schemas.topics import REWARDS
from stoker.demo.disturbance import Disturbed, Doses
from stoker.demo.effect import Restart, Touch
from stoker.demo.profile import profile_of
from stoker.demo.rolling import RollingRestart
from stoker.replay.gateway import Seen
from stoker.replay.rewards import Judge
from stoker.replay.run import Place, gateway_at
from stoker.replay.sink import EventSink
from stoker.replay.turns import until

REPORT_EVERY_S = 0.5
BAD_SHARE = 0.15
"""Share of the questions whose answers are judged bad."""


@dataclass(frozen=True)
class Errand:
    """What the gateway's process is to do.

    Attributes:
        input: folder of the trace; None for the generated workload.
        until_minutes: where it stops early, the workload being that of `minutes`; None for its end.
        silent: no event is published: what plain LRU does is nobody's demand.
        judged_share: of good answers that get a reward.
        restarts: replicas and when, counted from the start, they are taken out to be restarted.
    """

    place: Place
    input: Path | None
    minutes: float
    seed: int
    doses: Doses = field(default_factory=Doses)
    until_minutes: float | None = None
    silent: bool = False
    judged_share: float = 0.3
    restarts: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class Report:
    """How far it is, sent twice a second.

    Attributes:
        touches: requests that ended since the last report.
        records: sent to llm.requests so far; `requests`, `errors` and `behind_ms` as `Gateway` has them.
        misses: requests that had to load their adapter; judged: rewards that were sent.
        leaving: replicas that get no requests and may be restarted; restarts: those that came back.
        over: every turn was played and every event is in Kafka.
        fault: why it gave up.
    """

    touches: tuple[Touch, ...] = ()
    records: int = 0
    requests: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    behind_ms: float = 0.0
    misses: int = 0
    judged: int = 0
    leaving: tuple[str, ...] = ()
    restarts: tuple[Restart, ...] = ()
    over: bool = False
    fault: str | None = None


class Traffic:
    """The process, seen from the demo."""

    def __init__(self, errand: Errand) -> None:
        context = multiprocessing.get_context("spawn")
        self._reports, there = context.Pipe(duplex=False)
        self._process = context.Process(target=carry_out, args=(errand, there), name="stoker-demo-gateway", daemon=True)
        self._process.start()
        there.close()
        self.touches: list[Touch] = []
        self.latest = Report()

    def read(self) -> None:
        """Take in what it reported since.

        Raises:
            StackFault: it gave up, or its process died.
        """
        try:
            while self._reports.poll():
                self.latest = self._reports.recv()
                self.touches += self.latest.touches
        except (EOFError, OSError):
            if not self.latest.over:
                raise StackFault("the gateway's process died; it says why above") from None
        if self.latest.fault is not None:
            raise StackFault(f"the gateway gave up: {self.latest.fault}")

    @property
    def over(self) -> bool:
        """Whether everything was played."""
        return self.latest.over

    def stop(self) -> None:
        """End it, played to the end or not."""
        if self._process.is_alive() and not self.over:
            self._process.terminate()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._reports.close()


def carry_out(errand: Errand, reports: Connection) -> None:
    """The process: plays the errand's traffic. It ends too when nobody takes its reports any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C reaches all; the demo ends this process itself
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with contextlib.suppress(BrokenPipeError):
        try:
            asyncio.run(_play(errand, reports))
        except StokerError as fault:
            reports.send(Report(fault=str(fault)))


async def _play(errand: Errand, reports: Connection) -> None:
    turns = profile_of(errand.input, errand.seed).turns(errand.minutes)
    if errand.until_minutes is not None:
        turns = until(turns, errand.until_minutes * 60_000)
    touches: list[Touch] = []
    judge = Judge(0.0 if errand.silent else errand.judged_share, BAD_SHARE, errand.seed)

    def report(over: bool = False) -> None:
        sent = Report(
            touches=tuple(touches),
            records=0 if errand.silent else sink.records,
            requests=gateway.requests,
            errors=dict(gateway.errors),
            behind_ms=gateway.behind_ms,
            misses=gateway.adapter_misses,
            judged=rewards.records,
            leaving=tuple(sorted(gateway.resting)),
            restarts=tuple(rolling.done),
            over=over,
        )
        touches.clear()
        reports.send(sent)

    def seen(request: Seen) -> None:
        touches.append(touch_of(request))
        reward = judge(request, time.time_ns() // 1_000_000)
        if reward is not None:
            rewards.raw(encode(reward), reward.query_sha256, reward.occurred_at_ms)

    def told(sink: EventSink) -> Callable[[RequestEvent], None]:
        return _nobody if errand.silent else Disturbed(sink, errand.doses, errand.seed)

    producer = await asyncio.to_thread(KafkaRecordProducer, errand.place.kafka, client_id="stoker-demo-rewards")
    rewards = EventSink(producer, errand.place.kafka.topic(REWARDS))
    try:
        async with gateway_at(errand.place, told) as (gateway, sink):
            rolling = RollingRestart(gateway, errand.place.engines, errand.restarts)
            restarts = asyncio.create_task(rolling.run())
            play = asyncio.create_task(gateway.play(turns, seen))
            while not play.done():
                await asyncio.wait({play}, timeout=REPORT_EVERY_S)
                report()
            restarts.cancel()
            await play
        await asyncio.to_thread(producer.flush)
    finally:
        await asyncio.to_thread(producer.close, 5_000)
    report(over=True)


def _nobody(_event: RequestEvent) -> None:
    """Hears what is told to nobody."""


def touch_of(seen: Seen) -> Touch:
    """A request as the effect looks at it."""
    answer, segments = seen.answer, seen.start.segments
    return Touch(
        at_ms=seen.start.occurred_at_ms,
        scope=seen.scope,
        replica=seen.start.replica or "",
        segments=tuple(segment.hash for segment in segments),
        tokens=tuple(segment.tokens for segment in segments),
        ttft_ms=answer.ttft_ms,
        cached_tokens=answer.cached_tokens or 0,
        input_tokens=answer.prompt_tokens,
        due_ms=seen.turn.at_ms,
        answer_tokens=answer.output_tokens or 0,
        latency_ms=answer.latency_ms,
    )
