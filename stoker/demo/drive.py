"""Drives a started session: traffic from its own process, topics into the board, figures onto the screen."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

from connectors.kafka.consumer import KafkaRecordConsumer
from connectors.settings import KafkaSettings
from schemas.topics import COMMANDS, DEAD_LETTERS, INSIGHTS, OUTCOMES
from stoker.demo.board import Board
from stoker.demo.config import DemoConfig
from stoker.demo.effect import Sample, grouped, shadowed, whole
from stoker.demo.gain import gain
from stoker.demo.idle import idle
from stoker.demo.profile import BLOCK_TOKENS
from stoker.demo.result import Figures
from stoker.demo.session import Session
from stoker.demo.show import Screen
from stoker.demo.statistics import control
from stoker.demo.timeline import timeline
from stoker.demo.traffic import Errand, Traffic

LOOK_EVERY_S = 0.5
CHECK_EVERY_S = 3.0
SETTLE_S = 60.0
"""How long after the traffic the last events may take to be accounted for and the last commands to be done."""
TRAFFIC_STARTS_S = 2.0
"""How long the gateway's process takes to begin, about."""
LEAVE_S = 1.0
"""How long a replica that gets no new requests may finish those that it has."""
_RATE_SPAN_S = 5.0


class Run:
    """One run: what was seen so far, and the figures made of it."""

    def __init__(self, config: DemoConfig, traffic: Traffic, board: Board, before: Before | None = None) -> None:
        self._config = config
        self._traffic = traffic
        self._board = board
        self._before = before
        self._began_s: float | None = None
        self._ended_s: float | None = None
        self._recent: deque[tuple[float, int]] = deque()
        self.restarts = 0

    def look(self) -> None:
        """Take in what the traffic reported."""
        self._traffic.read()
        now = time.monotonic()
        if self._began_s is None and self._traffic.latest.records:
            self._began_s = now
        if self._ended_s is None and self._traffic.over:
            self._ended_s = now
        self._recent.append((now, self._traffic.latest.records))
        while len(self._recent) > 2 and self._recent[1][0] <= now - _RATE_SPAN_S:
            self._recent.popleft()

    @property
    def leaving(self) -> frozenset[str]:
        """Replicas that get no requests, so that they may be restarted."""
        return frozenset(self._traffic.latest.leaving)

    @property
    def over(self) -> bool:
        """Whether the traffic is over."""
        return self._traffic.over

    @property
    def settled(self) -> bool:
        """Whether every record is accounted for and every command has an outcome."""
        board = self._board
        done = {outcome.command_id for outcome in board.outcomes.values()}
        return board.read >= self._traffic.latest.records and done >= board.commands.keys()

    def figures(self, final: bool = False) -> Figures:
        """The figures now.

        Args:
            final: also what takes a while: control, timeline, and what only the whole run can tell.
        """
        config, board, latest, before = self._config, self._board, self._traffic.latest, self._before
        touches = shadowed(self._traffic.touches, config.profile.capacity_tokens, latest.restarts, BLOCK_TOKENS)
        issued = board.issued(shadows=config.mode == "off")
        commands = [command for command in issued if command.scope not in config.profile.withheld]
        began_s = time.monotonic() if self._began_s is None else self._began_s
        return Figures(
            seconds=(self._ended_s or time.monotonic()) - began_s,
            records=latest.records,
            requests=latest.requests,
            errors=latest.errors,
            events_per_s=self._rate(),
            behind_ms=latest.behind_ms,
            prefilled_tokens=sum(seen.touch.input_tokens - seen.touch.cached_tokens for seen in touches),
            restarts=self.restarts,
            groups=grouped(touches, commands),
            board=board,
            lru_only=None if before is None else before.sample,
            in_its_place=None if before is None else whole(touches, before.until_ms),
            control=control(touches, commands, config.seed) if final else None,
            adapter_misses=(latest.misses, 0 if before is None else before.adapter_misses),
            judged=latest.judged,
            timeline=timeline(touches, commands) if final else (),
            idle=idle(self._traffic.touches) if final else (),
            gain=gain(touches, config.seed) if final else None,
            mode=config.mode,
        )

    def _rate(self) -> float:
        if len(self._recent) < 2:
            return 0.0
        (then_s, before), (now_s, now) = self._recent[0], self._recent[-1]
        return (now - before) / (now_s - then_s) if now_s > then_s else 0.0


@dataclass(frozen=True)
class Before:
    """The run before: the same workload on the same replicas, and nothing that warms.

    Attributes:
        until_ms: what the workload wanted before this time was played.
    """

    sample: Sample
    until_ms: float
    adapter_misses: int


async def drive_alone(session: Session, screen: Screen) -> Before | None:
    """Play the beginning of the workload without Stoker, then empty every cache; None where no time is given to it.

    Raises:
        StackFault: a part died, or the gateway could not go on.
    """
    config = session.config
    if not config.lru_minutes:
        return None
    errand = Errand(
        session.place,
        config.input,
        config.minutes,
        config.seed,
        until_minutes=config.lru_minutes,
        silent=True,
    )
    traffic = Traffic(errand)
    try:
        run = Run(config, traffic, Board())
        await _attend(session, screen, run, lambda: run.over, quiet=True)
        touches = shadowed(traffic.touches, config.profile.capacity_tokens, block_tokens=BLOCK_TOKENS)
        misses = traffic.latest.misses
    finally:
        traffic.stop()
    for engine in session.stack.engines:
        await asyncio.to_thread(session.restart_engine, engine.config.name)
    return Before(whole(touches), config.lru_minutes * 60_000, misses)


async def drive(session: Session, screen: Screen, before: Before | None = None) -> Figures:
    """Play the workload to its end, wait until all is accounted for, and return the final figures.

    Raises:
        StackFault: a part died, or the gateway could not go on.
    """
    config, board = session.config, Board()
    async with following(session.kafka, board):
        await asyncio.to_thread(session.announce, time.time_ns() // 1_000_000 + round(TRAFFIC_STARTS_S * 1000))
        traffic = Traffic(Errand(session.place, config.input, config.minutes, config.seed, restarts=config.restarts))
        try:
            run = Run(config, traffic, board, before)
            with screen.live():
                await _attend(session, screen, run, lambda: run.over)
            board.close()
            screen.say("traffic is over; waiting until every event is accounted for and every command has ended")
            deadline = time.monotonic() + SETTLE_S
            with screen.live():
                await _attend(session, screen, run, lambda: run.settled or time.monotonic() > deadline)
        finally:
            traffic.stop()
    return run.figures(final=True)


async def _attend(session: Session, screen: Screen, run: Run, over: Callable[[], bool], quiet: bool = False) -> None:
    """Look, draw and watch the parts until it is over; restart the replicas that the traffic has left."""
    next_check_s = 0.0
    restarted: set[str] = set()
    while not over():
        run.look()
        for replica in run.leaving - restarted:
            restarted.add(replica)
            screen.say(f"restarting replica {replica}: its cache is empty afterwards")
            await asyncio.sleep(LEAVE_S)
            await asyncio.to_thread(session.restart_engine, replica)
        if screen.due and not quiet:
            screen.update(run.figures())
        if time.monotonic() >= next_check_s:
            run.restarts = await asyncio.to_thread(session.check)
            next_check_s = time.monotonic() + CHECK_EVERY_S
        await asyncio.sleep(LOOK_EVERY_S)


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
