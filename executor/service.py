"""The executor: the order in which its parts come to life, and the order in which they end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

from connectors.metrics import SILENT, MetricSink
from executor.arrivals import Arrivals
from executor.brake_words import BrakeWords
from executor.cache_warm import CacheWarm
from executor.department import Department
from executor.failpoints import reached
from executor.policy_feed import PolicyFeed
from executor.ports import Ports
from executor.settings import ExecutorTree
from executor.shared import Shared
from executor.speaker import Speaker
from executor.tail import Heard, Tail
from executor.tasks import because, ended, failure_of
from schemas import Cancel, Policy, Prefix, StackFault, WarmupCommand, topics

log = logging.getLogger(__name__)

LEAVE_S = 10.0
LOOK_EVERY_S = 0.5
CAUGHT_UP_S = 30.0


class Executor:
    """One executor process.

    Args:
        tree: its settings.
        ports: the outside.
        metrics: where it counts.

    Raises:
        BrokenConfiguration: a salt's reference leads nowhere.
    """

    def __init__(self, tree: ExecutorTree, ports: Ports, metrics: MetricSink = SILENT) -> None:
        self.tree = tree
        self.ready = False
        self.draining = False
        self._shared = Shared(tree, ports, metrics)
        names = tree.kafka
        self._policy = PolicyFeed(
            lambda: ports.consumer(None), names.topic(topics.POLICY), self._shared.on_loop(self._take_policies)
        )
        self._tail = Tail(
            lambda: ports.consumer(None),
            (names.topic(topics.COMMANDS), names.topic(topics.OUTCOMES)),
            self._shared.on_loop(self._hear),
            ports.now_ms,
        )
        self._speaker = Speaker(self._shared)
        self._words = BrakeWords(
            ports.brakes,
            self._shared.braking,
            lambda: [member.engine.name for member in self._shared.roster],
            tree.executor.telemetry_ms,
        )
        self._departments = [Department(pool, self._shared, self._remember) for pool in tree.pools]
        self._of_pool = {department.name: department for department in self._departments}
        self.cache_warm = CacheWarm(
            self._shared.roster,
            self._shared.engines,
            self._shared.published,
            lambda scope: self._shared.book.plan(scope).prefix_resident_ms,
            tree.executor,
            tree.time_scale,
            ports.now_ms,
        )
        self._arrivals = Arrivals(self._shared, self._of_pool, self._speaker)
        self._arriving: list[asyncio.Task[None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._takers: list[asyncio.Task[None]] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Lives until `stop` is set, then drains.

        Raises:
            StackFault: a part of it has ended.
            StackFault, TransientFault, BrokenConfiguration: it could not begin.
        """
        try:
            await self.begin()
            log.info("ready", extra={"fields": {"holder": self._shared.holder, "pools": list(self.tree.pools)}})
            await self._stopped_or_broken(stop)
        finally:
            await self.drain()

    async def _stopped_or_broken(self, stop: asyncio.Event) -> None:
        """Returns when `stop` is set.

        Raises:
            StackFault: a part has ended that does not come back by itself. Going on without it would look alive and do
                half of the work; whoever supervises the process starts it anew.
        """
        while not stop.is_set():
            broken = self.broken()
            if broken:
                raise StackFault(f"the executor cannot go on: {'; '.join(broken)}; start it again (its log says more)")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await stop.wait()

    async def begin(self) -> None:
        """Steps 1 and 2, then everything that works side by side; commands are read last."""
        self._shared.bind(asyncio.get_running_loop())
        self._take_policies(await asyncio.to_thread(self._policy.read_to_end))
        reached("policy_read")
        await self._shared.keeper.assured()
        reached("ledger_rebuilt")
        self._policy.start()
        self._tail.start()
        await self._speaker.begin()
        self._spawn(self._speaker.leases.run())
        self._spawn(self._shared.keeper.run())
        self._spawn(self._words.run())
        self._spawn(self.cache_warm.run())
        self._spawn(self._shared.proofs.run())
        for department in self._departments:
            self._spawn(department.settler.run())
            if department.sweeper is not None:
                self._spawn(department.sweeper.run())
            name = department.name
            self._takers.append(asyncio.create_task(department.entrance.run(), name=f"admission of {name}"))
            self._takers.append(asyncio.create_task(department.workers.run(), name=f"workers of {name}"))
        if not await asyncio.to_thread(self._tail.caught_up.wait, CAUGHT_UP_S):
            log.warning("the tail has not caught up in %.0f s: a Cancel of before may not be known yet", CAUGHT_UP_S)
        for department in self._departments:
            if not department.awaiting:
                department.intake.start()
        if self._shared.ports.sources:
            self._arriving.append(asyncio.create_task(self._arrivals.run(), name="discovery"))
        self.ready = True

    async def drain(self) -> None:
        """Stops consuming, lets what runs come to its end within `drain_s`, publishes, commits, gives leases back.

        What waits stays uncommitted and comes to another executor, or to this one's next life.
        """
        if self.draining:
            return
        self.ready, self.draining = False, True
        log.info("draining")
        await ended(self._arriving)
        for department in self._departments:
            department.intake.stop_reading()
        await ended(self._takers)
        await asyncio.gather(*(department.finish(self.tree.executor.drain_s) for department in self._departments))
        await asyncio.gather(
            *(asyncio.to_thread(department.intake.leave, LEAVE_S) for department in self._departments),
            asyncio.to_thread(self._policy.leave, LEAVE_S),
            asyncio.to_thread(self._tail.leave, LEAVE_S),
        )
        await ended(self._tasks)
        await asyncio.gather(*(d.sweeper.end() for d in self._departments if d.sweeper is not None))
        await self._speaker.end()
        await self._arrivals.end()
        log.info("drained")

    def broken(self) -> list[str]:
        """What has ended and does not come back by itself; empty while the process is worth keeping."""
        if not self.ready:
            return []
        begun = [d for d in self._departments if d.intake.started]
        found = [because(f"intake of {d.name}", d.intake.failure) for d in begun if not d.intake.alive]
        found += [because("policy feed", self._policy.failure)] if not self._policy.alive else []
        found += [because("tail", self._tail.failure)] if not self._tail.alive else []
        tasks = (*self._arriving, *self._tasks, *self._takers, *self._speaker.tasks)
        return found + [because(task.get_name(), failure_of(task)) for task in tasks if task.done()]

    def unready(self) -> list[str]:
        """Why it does not take commands now; empty when it does."""
        if not self.ready:
            return ["draining" if self.draining else "starting"]
        why = [f"{d.name}: its replicas have not been found yet" for d in self._departments if d.awaiting]
        begun = [d for d in self._departments if not d.awaiting]
        why += [f"{d.name}: not in its consumer group yet" for d in begun if not d.intake.joined.is_set()]
        if not self._shared.keeper.trusted:
            why.append("the ledger is being rebuilt")
        return why + self.broken()

    def held_back(self) -> list[str]:
        """What it takes commands for and does not apply, until somebody sets something right outside."""
        return self._shared.proofs.failing

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work, name=work.__qualname__))

    def _take_policies(self, policies: list[Policy]) -> None:
        changed = [policy for policy in policies if self._applied(policy)]
        if any(policy.section == "freeze" for policy in changed):
            stopped = sum(department.pool.freeze() for department in self._departments)
            log.info("freeze changed", extra={"fields": {"stopped": stopped}})

    def _applied(self, policy: Policy) -> bool:
        try:
            return self._shared.book.apply(policy)
        except Exception:
            # A freeze that comes behind it must be heard all the same.
            log.exception("policy %s of %s by %s cannot be applied", policy.section, policy.scope, policy.writer)
            return False

    def _remember(self, command: WarmupCommand) -> None:
        if isinstance(command.target, Prefix):
            self._shared.commands.put(command.command_id, command)
        department = self._of_pool.get(command.pool)
        if department is not None:
            department.hear(command)

    def _hear(self, heard: list[Heard]) -> None:
        for message in heard:
            try:
                self._hear_one(message)
            except Exception:
                # One record that nobody can use must not take those behind it along.
                log.exception("the tail heard something unusable")

    def _hear_one(self, message: Heard) -> None:
        if isinstance(message, WarmupCommand):
            self._hear_command(message)
        else:
            self._shared.published.add(message.outcome_id, message.status)
            self._speaker.hear(message)
            self._shared.braking.heard(message)
            self.cache_warm.heard(message)
            department = self._of_pool.get(message.pool)
            if department is not None:
                department.hear_end(message.command_id, message.replica)

    def _hear_command(self, command: WarmupCommand) -> None:
        self._remember(command)
        self.cache_warm.asked(command)
        if not isinstance(command.target, Cancel) or command.shadow or self.tree.executor.shadow:
            return
        for command_id in command.target.command_ids:
            self._shared.cancelled.put(command_id, None)
        for department in self._departments:
            department.pool.stop(command.target.command_ids, "cancelled")
