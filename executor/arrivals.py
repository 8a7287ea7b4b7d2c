"""Arrivals: what comes with a replica that a source tells of, and what goes with one that it no longer tells of."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import aclosing

from connectors.engines.base import Engine
from executor.department import Department
from executor.ports import ReplicaSource
from executor.roster import Changes, Member
from executor.shared import Shared
from executor.speaker import Speaker
from executor.tasks import side_by_side

log = logging.getLogger(__name__)

CLOSE_S = 5.0


class Arrivals:
    """Follows the sources of replicas, and makes the rest of the executor follow them.

    Args:
        departments: by pool.
    """

    def __init__(self, shared: Shared, departments: Mapping[str, Department], speaker: Speaker) -> None:
        self._shared = shared
        self._departments = departments
        self._speaker = speaker
        self._found: dict[str, Engine] = {}
        self._one_at_a_time = asyncio.Lock()
        self._tell()

    async def run(self) -> None:
        """Works until cancelled."""
        await side_by_side(self._follow(number, source) for number, source in enumerate(self._shared.ports.sources))

    async def _follow(self, number: int, source: ReplicaSource) -> None:
        async with aclosing(source.discovery.lists()) as lists:
            async for endpoints in lists:
                async with self._one_at_a_time:
                    await self._take(self._shared.roster.heard(number, endpoints))
                    department = self._departments[source.settings.pool]
                    if not department.awaiting and not department.intake.started:
                        department.intake.start()

    async def _take(self, changes: Changes) -> None:
        for name, why in changes.refused:
            log.warning("replica %s is left out: %s", name, why)
        self._tell()
        for member in changes.left:
            await self._leave(member)
        for member in changes.joined:
            self._join(member)
        for member in changes.moved:
            await self._move(member)
        for member in changes.turned:
            self._turn(member)

    def _tell(self) -> None:
        pools = Counter(dict.fromkeys(self._shared.tree.executor.engine_pools, 0))
        pools.update(member.engine.pool for member in self._shared.roster if not member.draining)
        for pool, count in pools.items():
            self._shared.metrics.level("stoker_executor_replicas_known_count", count, pool=pool)

    def _join(self, member: Member) -> None:
        name = member.engine.name
        self._shared.engines[name] = self._found[name] = self._shared.ports.engine(member.engine)
        if not member.draining:
            self._departments[member.engine.pool].welcome(name)
        self._speaker.join(name)
        _log("came", member)

    async def _leave(self, member: Member) -> None:
        name, department = member.engine.name, self._departments[member.engine.pool]
        turned_away = department.part_with(name)
        await department.workers.let_go(name)
        await self._speaker.leave(name)
        del self._shared.engines[name]
        await _close(name, self._found.pop(name))
        self._shared.metrics.forget("replica", name)
        _log("left", member, turned_away)

    async def _move(self, member: Member) -> None:
        """Another engine under the same name: what waits for it goes there, what runs at the old one is closed."""
        name, department = member.engine.name, self._departments[member.engine.pool]
        old = self._found[name]
        self._shared.engines[name] = self._found[name] = self._shared.ports.engine(member.engine)
        await department.workers.let_go(name)
        await self._speaker.move(name)
        await _close(name, old)
        self._turn(member, "moved")

    def _turn(self, member: Member, what: str = "") -> None:
        name, department = member.engine.name, self._departments[member.engine.pool]
        turned_away = 0
        if member.draining:
            turned_away = department.part_with(name)
        else:
            department.welcome(name)
        self._speaker.join(name)
        _log(what or ("drains" if member.draining else "takes warm-ups again"), member, turned_away)

    async def end(self) -> None:
        """Closes the engines that were found."""
        for name, engine in self._found.items():
            await _close(name, engine)
        self._found.clear()


async def _close(name: str, engine: Engine) -> None:
    try:
        async with asyncio.timeout(CLOSE_S):
            await engine.close()
    except TimeoutError:
        log.warning("connections to %s not closed in %.0f s", name, CLOSE_S)


def _log(what: str, member: Member, turned_away: int = 0) -> None:
    engine = member.engine
    fields = {"replica": engine.name, "pool": engine.pool, "url": engine.url, "turned_away": turned_away}
    log.info("replica %s", what, extra={"fields": fields})
