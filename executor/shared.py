"""What all parts of one executor share: the running policy, its memories, its name, and the way onto the event loop."""

from __future__ import annotations

import asyncio
import os
import socket
import time
import uuid
from collections.abc import Callable
from typing import TypeVar

from analytics.policy import PolicyBook
from connectors.engines.base import Engine
from connectors.metrics import MetricSink
from executor.apply.salts import SaltStore
from executor.braking import Braking
from executor.ledger_keeper import LedgerKeeper
from executor.memory import Published, Recent
from executor.ports import Ports
from executor.publisher import Publisher
from executor.roster import Roster
from executor.salt_proof import SaltProofs, fresh_ids
from executor.settings import ExecutorTree
from schemas import EVERY_SCOPE, WarmupCommand, topics

T = TypeVar("T")

CANCELLED_BOUND = 50_000
COMMANDS_BOUND = 20_000


def holder_name() -> str:
    """Names one life of one process: after a restart it is another."""
    return f"executor-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


class Shared:
    """Everything that more than one part of an executor needs.

    Attributes:
        holder: its name in leases and in the ledger.
        proofs: whether each replica keeps apart what is salted apart.
        roster: which replicas there are. engines: of each of them, by name.
        braking: what holds warm-ups back from each replica.
        book: the running policy; only the event loop touches it.
        published: outcomes that are out.
        cancelled: commands that were taken back, whether they have been seen or not.
        commands: recent Prefix commands, to know what an outcome is about.
    """

    def __init__(self, tree: ExecutorTree, ports: Ports, metrics: MetricSink) -> None:
        self.tree = tree
        self.ports = ports
        self.metrics = metrics
        self.holder = holder_name()
        self.roster = Roster(tree.executor.engines, [source.settings for source in ports.sources])
        self.engines: dict[str, Engine] = dict(ports.engines)
        self.salts = SaltStore(tree.executor.salts)
        self.book = PolicyBook()
        self.braking = Braking(self.book.breaker, ports.pressure, ports.now_ms, tree.time_scale, metrics)
        self.proofs = SaltProofs(
            self.salts,
            self.engines,
            lambda: [member.engine.name for member in self.roster if not member.draining],
            self.may_probe,
            time.monotonic,
            fresh_ids,
            tree.executor.request_timeout_ms / 1000,
            metrics,
        )
        self.published = Published()
        self.cancelled: Recent[str, None] = Recent(CANCELLED_BOUND)
        self.commands: Recent[str, WarmupCommand] = Recent(COMMANDS_BOUND)
        self.publisher = Publisher(ports.producer, tree.kafka)
        self.keeper = LedgerKeeper(
            ports.ledger,
            self.published,
            lambda: ports.consumer(None),
            tree.kafka.topic(topics.OUTCOMES),
            ports.now_ms,
            tree.executor.ledger_hours,
        )
        self._loop: asyncio.AbstractEventLoop | None = None

    def may_probe(self) -> bool:
        """Whether an engine may be asked for something that no command asks for: not in shadow, nor while all scopes
        are frozen."""
        settings = self.tree.executor
        return settings.readiness_probe and not settings.shadow and not self.book.frozen(EVERY_SCOPE)

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on threads can reach the event loop."""
        self._loop = loop

    def on_loop(self, take: Callable[[T], None]) -> Callable[[T], None]:
        """The same function, to be called from a thread: it runs on the event loop, in the order of the calls."""

        def hand_over(what: T) -> None:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(take, what)

        return hand_over
