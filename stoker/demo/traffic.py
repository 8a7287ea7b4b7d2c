"""The gateway of a demo in a process of its own, so that nothing that reads topics or draws delays what it measures."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from schemas import StackFault, StokerError
from stoker.demo.disturbance import Disturbed, Doses
from stoker.demo.effect import Touch
from stoker.demo.profile import profile_of
from stoker.replay.gateway import Gateway, Seen
from stoker.replay.run import Place, gateway_at
from stoker.replay.sink import EventSink

REPORT_EVERY_S = 0.5


@dataclass(frozen=True)
class Errand:
    """What the gateway's process is to do.

    Attributes:
        input: folder of the trace; None for the generated workload.
    """

    place: Place
    input: Path | None
    minutes: float
    seed: int
    doses: Doses = field(default_factory=Doses)


@dataclass(frozen=True)
class Report:
    """How far it is, sent twice a second.

    Attributes:
        touches: requests that ended since the last report.
        records: sent to llm.requests so far; `requests`, `errors` and `behind_ms` as `Gateway` has them.
        over: every turn was played and every event is in Kafka.
        fault: why it gave up.
    """

    touches: tuple[Touch, ...] = ()
    records: int = 0
    requests: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    behind_ms: float = 0.0
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
    touches: list[Touch] = []

    def report(over: bool = False) -> None:
        sent = Report(tuple(touches), sink.records, gateway.requests, dict(gateway.errors), gateway.behind_ms, over)
        touches.clear()
        reports.send(sent)

    def disturbed(sink: EventSink) -> Disturbed:
        return Disturbed(sink, errand.doses, errand.seed)

    gateway: Gateway
    sink: EventSink
    async with gateway_at(errand.place, disturbed) as (gateway, sink):
        play = asyncio.create_task(gateway.play(turns, lambda seen: touches.append(touch_of(seen))))
        while not play.done():
            await asyncio.wait({play}, timeout=REPORT_EVERY_S)
            report()
        await play
    report(over=True)


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
    )
