"""The speaker: for each replica whose lease is held, a watch that says what the replica does and holds."""

from __future__ import annotations

import asyncio
import logging

from executor.leases import LeaseKeeper
from executor.shared import Shared
from executor.tasks import ended
from executor.watch import Prefixed, ReplicaWatch
from schemas import StackFault, TransientFault, WarmupOutcome

log = logging.getLogger(__name__)

PAUSE_AFTER_FAULT_S = 0.5


class Speaker:
    """Keeps the leases, and starts and stops the watches as they come and go."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        settings = shared.tree.executor
        self._watches: dict[str, tuple[ReplicaWatch, asyncio.Task[None]]] = {}
        self._ended: list[asyncio.Task[None]] = []
        self.leases = LeaseKeeper(
            shared.ports.leases,
            shared.holder,
            tuple(engine.name for engine in settings.engines),
            settings.lease_ms,
            self._speak_for,
            self._fall_silent,
            shared.keeper.doubt,
            shared.metrics,
        )

    async def begin(self) -> None:
        """Shows presence and takes what leases are free; asks for as long as Redis is away."""
        while True:
            try:
                await self.leases.begin()
                return
            except (TransientFault, StackFault) as fault:
                log.warning("no leases yet: %s", fault)
                await asyncio.sleep(PAUSE_AFTER_FAULT_S)

    async def end(self) -> None:
        """Gives the leases back, which ends the watches."""
        await self.leases.release_all()
        await ended(self._ended)

    def join(self, replica: str) -> None:
        """A replica has come, or has ceased or begun to drain."""
        watch, member = self._watches.get(replica), self._shared.roster.get(replica)
        if watch is not None and member is not None:
            watch[0].draining = member.draining
        self.leases.add(replica)

    async def leave(self, replica: str) -> None:
        """A replica has left: its last sample tells so, and its lease is given back."""
        watch = await self._silenced(replica)
        if watch is not None:
            await watch.farewell()
        await self.leases.remove(replica)

    async def move(self, replica: str) -> None:
        """Another engine answers under the name now: its watch knows nothing of the one before."""
        if await self._silenced(replica) is not None and self.leases.holds(replica):
            self._speak_for(replica)

    async def _silenced(self, replica: str) -> ReplicaWatch | None:
        watch = self._unwatched(replica)
        if watch is None:
            return None
        await ended([watch[1]])
        return watch[0]

    def _unwatched(self, replica: str) -> tuple[ReplicaWatch, asyncio.Task[None]] | None:
        watch = self._watches.pop(replica, None)
        if watch is not None:
            self._shared.braking.unwatch(replica)
        return watch

    def hear(self, outcome: WarmupOutcome) -> None:
        """An outcome of any executor: what it made resident on a replica of ours is watched."""
        watch = self._watches.get(outcome.replica)
        if watch is None or outcome.status not in ("applied", "resident"):
            return
        command = self._shared.commands.get(outcome.command_id)
        if command is not None:
            watch[0].offer(Prefixed(command, outcome))
        elif outcome.target_key.startswith("adapter:") and outcome.action in ("load", "pin"):
            watch[0].touched(outcome)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The watches that should be running."""
        return [task for _, task in self._watches.values()]

    def _speak_for(self, replica: str) -> None:
        shared, member = self._shared, self._shared.roster.get(replica)
        if member is None or replica in self._watches:
            return
        engine = member.engine
        shared.braking.watch(replica)
        watch = ReplicaWatch(
            replica,
            engine.pool,
            shared.engines[replica],
            shared.ports.blobs,
            shared.salts,
            shared.publisher,
            shared.tree.executor,
            engine.events,
            shared.may_probe,
            shared.ports.now_ms,
            shared.braking,
            shared.metrics,
            engine.zone,
        )
        watch.draining = member.draining
        self._watches[replica] = (watch, asyncio.create_task(watch.run(), name=f"watch {replica}"))

    def _fall_silent(self, replica: str) -> None:
        watch = self._unwatched(replica)
        if watch is not None:
            watch[1].cancel()
            self._ended = [task for task in self._ended if not task.done()] + [watch[1]]
