"""Drives a started session: traffic through the gateway, topics into the board, figures onto the screen."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping

from connectors.kafka.consumer import KafkaRecordConsumer
from connectors.settings import KafkaSettings
from schemas.topics import COMMANDS, DEAD_LETTERS, INSIGHTS, OUTCOMES
from stoker.demo.board import Board
from stoker.demo.disturbance import Disturbed, Doses
from stoker.demo.effect import Touch, grouped
from stoker.demo.result import Figures
from stoker.demo.session import DemoConfig, Session
from stoker.demo.show import Screen
from stoker.replay.gateway import Gateway, Seen
from stoker.replay.run import gateway_at
from stoker.replay.sink import EventSink

LOOK_EVERY_S = 0.5
CHECK_EVERY_S = 3.0
SETTLE_S = 60.0
"""How long after the traffic the last events may take to be accounted for and the last commands to be done."""
_RATE_SPAN_S = 5.0


class Run:
    """One run: what was seen so far, and the figures made of it."""

    def __init__(self, config: DemoConfig, gateway: Gateway, sink: EventSink, board: Board) -> None:
        self._config = config
        self._gateway = gateway
        self._sink = sink
        self._board = board
        self._touches: list[Touch] = []
        self._began_s = time.monotonic()
        self._ended_s: float | None = None
        self._recent: deque[tuple[float, int]] = deque()
        self.restarts = 0

    def saw(self, seen: Seen) -> None:
        """A request has ended."""
        answer, segments = seen.answer, seen.start.segments
        self._touches.append(
            Touch(
                at_ms=seen.start.occurred_at_ms,
                scope=seen.scope,
                replica=seen.start.replica or "",
                segments=tuple(segment.hash for segment in segments),
                tokens=tuple(segment.tokens for segment in segments),
                ttft_ms=answer.ttft_ms,
                cached_tokens=answer.cached_tokens or 0,
                input_tokens=answer.prompt_tokens,
            )
        )

    def ended(self) -> None:
        """The traffic is over."""
        self._ended_s = time.monotonic()

    @property
    def settled(self) -> bool:
        """Whether every record is accounted for and every command has an outcome."""
        board = self._board
        done = {outcome.command_id for outcome in board.outcomes.values()}
        return board.read >= self._sink.records and done >= board.commands.keys()

    def figures(self) -> Figures:
        """The figures now."""
        profile, board = self._config.profile, self._board
        commands = [command for command in board.issued() if command.scope not in profile.withheld]
        return Figures(
            seconds=(self._ended_s or time.monotonic()) - self._began_s,
            records=self._sink.records,
            requests=self._gateway.requests,
            errors=dict(self._gateway.errors),
            events_per_s=self._rate(),
            behind_ms=self._gateway.behind_ms,
            prefilled_tokens=sum(touch.input_tokens - touch.cached_tokens for touch in self._touches),
            restarts=self.restarts,
            groups=grouped(self._touches, commands, profile.capacity_tokens),
            board=board,
        )

    def _rate(self) -> float:
        now, recent = time.monotonic(), self._recent
        recent.append((now, self._sink.records))
        while len(recent) > 2 and recent[1][0] <= now - _RATE_SPAN_S:
            recent.popleft()
        (then, before), span = recent[0], now - recent[0][0]
        return (self._sink.records - before) / span if then < now and span > 0 else 0.0


async def drive(session: Session, screen: Screen) -> Figures:
    """Play the workload to its end, wait until all is accounted for, and return the final figures.

    Raises:
        StackFault: a part died.
        StokerError: Kafka or Redis refused the gateway.
    """
    config, board = session.config, Board()
    async with following(session.kafka, board):
        doses = Doses()
        async with gateway_at(session.place, lambda sink: Disturbed(sink, doses, config.seed)) as (gateway, sink):
            run = Run(config, gateway, sink, board)
            play = asyncio.create_task(gateway.play(config.profile.turns(config.minutes), run.saw))
            try:
                with screen.live():
                    await _attend(session, screen, run, play.done, play)
            finally:
                play.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await play
            run.ended()
            board.close()
        screen.say("traffic is over; waiting until every event is accounted for and every command has ended")
        deadline = time.monotonic() + SETTLE_S
        with screen.live():
            await _attend(session, screen, run, lambda: run.settled or time.monotonic() > deadline, None)
    return run.figures()


async def _attend(
    session: Session, screen: Screen, run: Run, over: Callable[[], bool], task: asyncio.Task[None] | None
) -> None:
    """Draw and look after the parts until it is over."""
    next_check_s = 0.0
    while not over():
        if screen.due:
            screen.update(run.figures())
        if time.monotonic() >= next_check_s:
            run.restarts = await asyncio.to_thread(session.check)
            next_check_s = time.monotonic() + CHECK_EVERY_S
        if task is None:
            await asyncio.sleep(LOOK_EVERY_S)
        else:
            await asyncio.wait({task}, timeout=LOOK_EVERY_S)


@contextlib.asynccontextmanager
async def following(kafka: KafkaSettings, board: Board) -> AsyncIterator[None]:
    """Fold what the topics say into the board while the block runs."""
    handlers: Mapping[str, Callable[[bytes], None]] = {
        kafka.topic(COMMANDS): board.on_command,
        kafka.topic(OUTCOMES): board.on_outcome,
        kafka.topic(INSIGHTS): board.on_insight,
        kafka.topic(DEAD_LETTERS): board.on_dead,
    }
    consumer = await asyncio.to_thread(KafkaRecordConsumer, kafka, client_id="stoker-demo")
    consumer.assign(place for topic in handlers for place in consumer.partitions(topic))
    over = asyncio.Event()

    async def follow() -> None:
        while not over.is_set():
            for record in await asyncio.to_thread(consumer.poll, 200, 2_000):
                if record.value is not None:
                    handlers[record.topic](record.value)

    follower = asyncio.create_task(follow())
    try:
        yield
    finally:
        over.set()
        await asyncio.wait({follower})
        await asyncio.to_thread(consumer.close)
    follower.result()
