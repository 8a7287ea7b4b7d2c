"""Answers whether a replica's cache is warm: looks at its engine; what that means is decided in `executor.warmth`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from analytics.timescale import scaled
from connectors.engines.base import Engine
from executor.hot_mass import HotMass
from executor.memory import Published
from executor.roster import Member, Roster
from executor.settings import ExecutorSettings
from executor.tasks import ended
from executor.warmth import Verdict, Warmth, WarmthRule
from schemas import StokerError, WarmupCommand, WarmupOutcome

log = logging.getLogger(__name__)

SETTLE_MS = 15_000
"""One and a half of the planner's ticks (`plan.tick_ms`, 10 s): so long until it has looked at a new replica once."""
LOOK_MS = 1_000
"""An engine is not looked at more often for this, however often somebody asks."""
LOOK_S = 2.0


class CacheWarm:
    """Follows each replica until it was seen to answer, and looks at it again when somebody asks.

    Every executor does this for every replica, whoever holds its lease, so that any of them can be asked.

    Args:
        engines: by replica.
        plan_stay_ms: policy's `plan.prefix_resident_ms` of a scope, unscaled.
    """

    def __init__(
        self,
        roster: Roster,
        engines: Mapping[str, Engine],
        published: Published,
        plan_stay_ms: Callable[[str], int],
        settings: ExecutorSettings,
        time_scale: float,
        now_ms: Callable[[], int],
    ) -> None:
        self._roster = roster
        self._engines = engines
        self._now_ms = now_ms
        # What is hot and about to lapse is renewed at the planner's next tick.
        mass = HotMass(
            lambda scope: scaled(plan_stay_ms(scope) + SETTLE_MS, time_scale),
            published.__contains__,
            settings.watched_prefixes,
        )
        patience_ms = round(1000 * settings.cache_warm_patience_s)
        rule = WarmthRule(settings.cache_warm_share, patience_ms, scaled(SETTLE_MS, time_scale))
        self._mass = mass
        self._warmth = Warmth(rule, mass)
        self._followed: dict[str, Member] = {}
        self._looks: dict[str, asyncio.Task[None]] = {}

    def asked(self, command: WarmupCommand) -> None:
        """A command of any pool was heard."""
        self._mass.asked(command)

    def heard(self, outcome: WarmupOutcome) -> None:
        """An outcome of any executor was heard."""
        self._mass.heard(outcome)

    async def run(self) -> None:
        """Works until cancelled."""
        try:
            while True:
                names = [member.engine.name for member in self._members()]
                looks = [self._look(name) for name in names if self._warmth.pending(name)]
                if looks:
                    await asyncio.wait(looks)
                await asyncio.sleep(LOOK_MS / 1000)
        finally:
            await ended(self._looks.values())

    async def verdict(self, replica: str) -> Verdict | None:
        """Whether a replica's cache is warm; None if there is no replica of this name."""
        self._members()
        member = self._followed.get(replica)
        if member is None:
            return None
        looked_ms = self._warmth.looked_ms(replica)
        if looked_ms is None or not 0 <= self._now_ms() - looked_ms < LOOK_MS:
            # Shielded: others wait for the same look.
            await asyncio.shield(self._look(replica))
        names = self._roster.names(member.engine.pool)
        siblings = [name for name in names if name != replica]
        return self._warmth.verdict(replica, siblings, member.draining, self._now_ms())

    def _members(self) -> list[Member]:
        """All replicas. Of one that has left, or is another engine now, nothing is known any more."""
        members = {member.engine.name: member for member in self._roster}
        for name, before in self._followed.items():
            if name not in members or members[name].engine != before.engine:
                self._warmth.forget(name)
        self._followed = members
        return list(members.values())

    def _look(self, replica: str) -> asyncio.Task[None]:
        """The look at a replica that is under way, or else a new one."""
        look = self._looks.get(replica)
        if look is None:
            look = self._looks[replica] = asyncio.create_task(self._looked(replica), name=f"look at {replica}")
            look.add_done_callback(lambda _: self._looks.pop(replica, None))
        return look

    async def _looked(self, replica: str) -> None:
        engine, metrics = self._engines.get(replica), None
        if engine is None:
            return  # it is about to come
        try:
            async with asyncio.timeout(LOOK_S):
                metrics = await engine.metrics()
        except (StokerError, TimeoutError):
            pass  # it does not answer, which was the question
        except Exception:
            log.exception("%s cannot be looked at", replica)
        if self._engines.get(replica) is engine:
            self._warmth.looked(replica, metrics, self._now_ms())
