"""Whether a replica's cache is warm, for a pod that asks before it takes traffic. Pure.

It is once a share of the hot mass of its siblings is there, and at the latest when patience ends. That is said once in
a life of its engine: what is hot goes on to change, and a replica in traffic must not be taken out for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from connectors.engines.base import EngineMetrics
from executor.hot_mass import HotMass
from executor.telemetry import Incarnations

MASS_KEPT_MS = 1_000
"""A sibling's mass is not worked out more often."""


@dataclass(frozen=True)
class WarmthRule:
    """When a replica counts as warm.

    Attributes:
        share: of its siblings' hot mass, from which on it does (0 to 1).
        patience_ms: after so long it does whatever is missing.
        settle_ms: before that, nothing can be said: the planner has not looked since it became ready.
    """

    share: float
    patience_ms: int
    settle_ms: int


@dataclass(frozen=True)
class Verdict:
    """Whether it is warm, and why; one short sentence for a person."""

    warm: bool
    why: str


@dataclass
class _Life:
    """What is known of one replica.

    Attributes:
        since_ms: what was done there before is lost: of another life.
        looked_ms: when it was looked at last; None before the first look.
        ready_ms: when it was first seen to answer in this life; None before.
        asked_ms: when it was first asked about in vain: it did not answer.
        sleeping: whether it slept at the last look.
        opened: the verdict that stays.
    """

    since_ms: int = 0
    looked_ms: int | None = None
    ready_ms: int | None = None
    asked_ms: int | None = None
    sleeping: bool = False
    opened: Verdict | None = None
    incarnations: Incarnations = field(default_factory=Incarnations)


class Warmth:
    """The warmth of all replicas that this executor follows."""

    def __init__(self, rule: WarmthRule, mass: HotMass) -> None:
        self._rule = rule
        self._mass = mass
        self._lives: dict[str, _Life] = {}
        self._masses: dict[str, tuple[int | None, int]] = {}

    def looked_ms(self, replica: str) -> int | None:
        """When a replica was looked at last; None if it never was."""
        return self._life(replica).looked_ms

    def pending(self, replica: str) -> bool:
        """Whether it was not seen to answer yet: when it does is worth knowing to the second."""
        life = self._life(replica)
        return life.ready_ms is None and life.opened is None

    def looked(self, replica: str, metrics: EngineMetrics | None, now_ms: int) -> None:
        """A replica was looked at; `metrics` is None if its engine did not answer."""
        life = self._life(replica)
        before_ms, life.looked_ms = life.looked_ms, now_ms
        if metrics is None:
            return
        life.sleeping = metrics.sleeping is True
        anew = life.incarnations.seen(metrics, now_ms)
        if anew or (life.ready_ms is None and metrics.ttft_s.count == 0):
            # It has served nobody yet. The old life ended at some time after it was looked at last.
            life.since_ms, life.ready_ms, life.opened = now_ms if before_ms is None else before_ms, now_ms, None
        elif life.ready_ms is None:
            life.ready_ms = now_ms
            if before_ms is None:
                life.opened = Verdict(True, "it was serving before this executor looked")

    def verdict(self, replica: str, siblings: Sequence[str], drains: bool, now_ms: int) -> Verdict:
        """Whether its cache is warm.

        Args:
            siblings: the pool's other replicas that take warm-ups.
            drains: no warm-up is sent to it, so that waiting for one is in vain.
        """
        life = self._life(replica)
        if life.sleeping:
            return Verdict(False, "its engine sleeps")
        if life.opened is not None:
            return life.opened
        if life.ready_ms is None and life.asked_ms is None:
            life.asked_ms = now_ms
        verdict = self._judged(life, replica, siblings, drains, now_ms)
        if not verdict.warm and now_ms - _began_ms(life) >= self._rule.patience_ms:
            verdict = Verdict(True, f"waited for {self._rule.patience_ms / 1000:g} s: {verdict.why}")
        if verdict.warm:
            life.opened = verdict
        return verdict

    def _judged(self, life: _Life, replica: str, siblings: Sequence[str], drains: bool, now_ms: int) -> Verdict:
        """The verdict, patience apart."""
        if drains:
            return Verdict(True, "it drains, so that nothing is warmed there")
        if life.ready_ms is None:
            return Verdict(False, "its engine does not answer")
        if now_ms - life.ready_ms < self._rule.settle_ms:
            return Verdict(False, "it is not known yet what is hot")
        held, lacking = self._mass.of(replica, life.since_ms, now_ms)
        hot = max(held + lacking, *(self._held(sibling, now_ms) for sibling in siblings), 0)
        if not hot:
            return Verdict(True, "nothing is hot")
        return Verdict(held >= self._rule.share * hot, f"{held:,} of {hot:,} hot tokens are there")

    def _held(self, replica: str, now_ms: int) -> int:
        """What a sibling holds, as it was at most a second ago."""
        at_ms, held = self._masses.get(replica, (None, 0))
        if at_ms is None or not 0 <= now_ms - at_ms < MASS_KEPT_MS:
            since_ms = self._lives[replica].since_ms if replica in self._lives else 0
            held = self._mass.of(replica, since_ms, now_ms).held
            self._masses[replica] = now_ms, held
        return held

    def forget(self, replica: str) -> None:
        """A replica has left, or another engine goes by its name now."""
        self._lives.pop(replica, None)
        self._masses.pop(replica, None)
        self._mass.forget(replica)

    def _life(self, replica: str) -> _Life:
        return self._lives.setdefault(replica, _Life())


def _began_ms(life: _Life) -> int:
    """From when on patience is counted."""
    began_ms = life.asked_ms if life.ready_ms is None else life.ready_ms
    assert began_ms is not None
    return began_ms
