"""The breaker of one replica: whether warming it would do harm, and who gives way (D16). Pure: time is passed in.

Closed, warm-ups run at the share of the usual concurrency that load and memory pressure leave them. When the rules of
`analytics.breaker_rules`, users' own figures (`analytics.foreground`) or the cache (`analytics.displacement`) show
harm, it opens, each time for twice as long; then it lets one warm-up through and closes if nothing comes of it.

Under pressure, and while it is not closed, best effort is turned away, burstable waits for its turn, and guaranteed
goes on.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from analytics.breaker_rules import Advice, Load, spec
from analytics.displacement import Displacement
from analytics.foreground import Counters, Foreground, Own
from analytics.pace import Pace
from analytics.policy_sections import BreakerPolicy
from analytics.pressure import Pressure
from schemas.warmup_command import Qos

State = Literal["closed", "half_open", "open"]
Word = Literal["go", "wait", "refuse"]

PREHEATING_MS = 1_000
SETTLED_MS = 10_000
"""So long after the last warm-up users fare as if there had been none."""
ADOPTED_MS = 30_000
"""So long after the last warm-up whatever still looks like harm is none of theirs."""
LATE_MS = 10_000
"""What ended so long before the last look stands in no count that is still to come."""
OWN_BOUND = 4_096


@dataclass(frozen=True)
class Reading:
    """What a replica tells at a look.

    Attributes:
        incarnation: of the engine: in another one, nothing that was learned holds.
        idle_ms: how long blocks were idle that left since the last look; None where the engine does not tell.
    """

    incarnation: str
    load: Load
    counters: Counters
    blocks_total: int | None = None
    idle_ms: float | None = None


@dataclass(frozen=True)
class Brake:
    """What holds until the next look.

    Attributes:
        share: of the usual concurrency that burstable and best effort have, 0..1.
        pressed: whether the host is short of memory.
        probing: whether the one warm-up of a half-open breaker is out.
        reasons: why it is not closed, or not all of the share, sorted.
    """

    state: State = "closed"
    share: float = 1.0
    pressed: bool = False
    probing: bool = False
    reasons: tuple[str, ...] = ()

    def says(self, qos: Qos) -> Word:
        """Whether a warm-up of this class may begin."""
        if qos == "guaranteed":
            return "go"
        if qos == "best_effort" and (self.pressed or self.state != "closed"):
            return "refuse"
        if self.state == "open" or self.probing or self.share <= 0:
            return "wait"
        return "go"

    def places(self, usual: int) -> int:
        """How many warm-ups may run at once: of its share at least one."""
        if self.state == "half_open":
            return 1
        return 0 if self.state == "open" or self.share <= 0 else max(1, int(self.share * usual))


class Breaker:
    """One replica's breaker. Its memory is bounded and does not survive.

    A new one is closed. Usage, queue and memory pressure hold from its first look on. What was warmed of late it is
    told again (`warmed`); how users fare without warm-ups it learns anew, and until then it says nothing of it. That it
    was open, and how often, is forgotten: harm that goes on shows again.
    """

    def __init__(self) -> None:
        self.brake = Brake()
        self._displacement, self._foreground = Displacement(), Foreground()
        self._pressure, self._pace = Pressure(), Pace()
        self._incarnation: str | None = None
        self._blocks_total: int | None = None
        self._looked_ms: int | None = None
        self._own: list[Own] = []
        self._running = 0
        self._last_own_ms: int | None = None
        self._since_ms = 0
        self._until_ms = 0
        self._trips = 0
        self._judged_ms: int | None = None

    def began(self, at_ms: int) -> None:
        """A warm-up begins."""
        self._running += 1
        self._last_own_ms = at_ms
        if self.brake.state == "half_open":
            self.brake = replace(self.brake, probing=True)

    def ended(self, at_ms: int, warmed: bool = True) -> None:
        """It came to its end.

        Args:
            warmed: whether the engine did it; a probe that asked nothing of it proves nothing, and another may go.
        """
        self._running -= 1
        self._last_own_ms = at_ms
        if self.brake.probing and self._running == 0:
            self._judged_ms = at_ms if warmed else None
            self.brake = replace(self.brake, probing=warmed)

    def warmed(
        self,
        at_ms: int,
        prefix: Hashable,
        created_tokens: int,
        found_tokens: int,
        duration_ms: float,
        block_tokens: int,
        policy: BreakerPolicy,
    ) -> None:
        """A prefix was warmed here, by whichever executor; it may be heard of late."""
        self._last_own_ms = at_ms if self._last_own_ms is None else max(at_ms, self._last_own_ms)
        counted = self._looked_ms is not None and at_ms > self._looked_ms - LATE_MS
        if counted and len(self._own) < OWN_BOUND:
            self._own.append(Own(duration_ms, created_tokens + found_tokens, found_tokens))
        self._displacement.warmed(at_ms, prefix, created_tokens, found_tokens, block_tokens, policy.regret_ms)

    def stored(self, at_ms: int, blocks: Sequence[int], policy: BreakerPolicy) -> None:
        """Blocks became findable, by whomever."""
        self._displacement.stored(at_ms, blocks, policy)

    def removed(self, at_ms: int, blocks: Sequence[int], policy: BreakerPolicy) -> None:
        """Blocks had to leave. When it is enough, no look is waited for."""
        self._displacement.removed(at_ms, blocks, policy)
        if policy.enabled and policy.rule == "tuned" and self.brake.state == "closed" and self._spent(at_ms, policy):
            self.brake = replace(self.brake, share=0.0, reasons=tuple(sorted({*self.brake.reasons, "pace"})))

    def cleared(self, at_ms: int) -> None:
        """What the cache holds is not known any more, or nothing."""
        self._displacement.forget(at_ms)

    def look(self, at_ms: int, reading: Reading | None, psi: float | None, policy: BreakerPolicy) -> Brake:
        """What holds from now on.

        Args:
            reading: None while the replica does not answer: then its state stays.
            psi: see `analytics.pressure`.
        """
        if not policy.enabled:
            self.brake = Brake()
        elif reading is None:
            self._press(at_ms, psi, policy)
        elif policy.rule == "spec":
            self._follow_spec(at_ms, reading, policy)
        else:
            self._take_over(at_ms, reading)
            self._press(at_ms, psi, policy)
            self._judge(at_ms, reading, policy)
        return self.brake

    def _preheating(self, at_ms: int) -> bool:
        return self._running > 0 or self._rested_ms(at_ms) < PREHEATING_MS

    def _rested_ms(self, at_ms: int) -> float:
        """How long nothing was warmed."""
        if self._running:
            return 0
        return float("inf") if self._last_own_ms is None else at_ms - self._last_own_ms

    def _follow_spec(self, at_ms: int, reading: Reading, policy: BreakerPolicy) -> None:
        advice = spec(reading.load, self._preheating(at_ms), policy)
        self.brake = Brake("open" if advice.action == "break" else "closed", advice.share, reasons=advice.reasons)

    def _take_over(self, at_ms: int, reading: Reading) -> None:
        if reading.incarnation != self._incarnation:
            if self._incarnation is not None:
                self._foreground.restart()
                self._displacement.forget(at_ms)
            self._incarnation = reading.incarnation
        self._blocks_total = reading.blocks_total
        self._foreground.look(at_ms, reading.counters, self._own, self._rested_ms(at_ms) >= SETTLED_MS)
        self._looked_ms = at_ms
        self._own.clear()

    def _press(self, at_ms: int, psi: float | None, policy: BreakerPolicy) -> None:
        self._pressure.look(at_ms, psi, policy)
        self.brake = replace(self.brake, pressed=self._pressure.step > 0)

    def _judge(self, at_ms: int, reading: Reading, policy: BreakerPolicy) -> None:
        # Budgets of the table are for every engine alike; here users' own baseline stands in for them.
        advice = spec(replace(reading.load, p99_ms=None), self._preheating(at_ms), replace(policy, spec="either"))
        signs = {*self._displacement.harm(at_ms, reading.blocks_total, reading.idle_ms, policy)}
        if self._rested_ms(at_ms) < ADOPTED_MS:
            signs |= {*self._foreground.harm(policy)}
        elif self._foreground.worse(policy):
            self._foreground.adopt()
        if advice.action == "break":
            signs |= {*advice.reasons}
        self._turn(at_ms, tuple(sorted(signs)), advice.action == "break", policy)
        if self.brake.state == "closed":
            self._share_out(at_ms, advice, policy)

    def _share_out(self, at_ms: int, advice: Advice, policy: BreakerPolicy) -> None:
        self._pace.passed(at_ms)
        spent = self._spent(at_ms, policy)
        share = 0.0 if spent else min(advice.share, self._pressure.share)
        reasons = {*advice.reasons, *(["pressure"] if self.brake.pressed else []), *(["pace"] if spent else [])}
        self.brake = replace(self.brake, share=share, reasons=tuple(sorted(reasons)))

    def _spent(self, at_ms: int, policy: BreakerPolicy) -> bool:
        return self._pace.spent(self._displacement.own_displaced(at_ms), self._blocks_total, policy)

    def _turn(self, at_ms: int, signs: tuple[str, ...], overloaded: bool, policy: BreakerPolicy) -> None:
        state = self.brake.state
        if state == "open":
            if at_ms >= self._until_ms and not overloaded:
                self._half_open(at_ms)
        elif signs:
            self._open(at_ms, signs, policy)
        elif state == "half_open" and self._proved(at_ms, policy):
            self._since_ms = at_ms
            self.brake = Brake(pressed=self.brake.pressed)

    def _proved(self, at_ms: int, policy: BreakerPolicy) -> bool:
        """Whether its warm-up did no harm; where none was asked for in all that time, there is nothing to wait for."""
        if self._judged_ms is not None:
            return at_ms - self._judged_ms >= policy.judge_ms
        return not self.brake.probing and at_ms - self._since_ms >= policy.open_ms

    def _open(self, at_ms: int, signs: tuple[str, ...], policy: BreakerPolicy) -> None:
        anew = self.brake.state == "half_open" or (self._trips and at_ms - self._since_ms < policy.open_max_ms)
        self._trips = self._trips + 1 if anew else 1
        self._since_ms = at_ms
        self._pace.halve()
        self._until_ms = at_ms + min(policy.open_max_ms, policy.open_ms * 2 ** min(self._trips - 1, 32))
        self.brake = Brake("open", 0.0, self.brake.pressed, reasons=signs)

    def _half_open(self, at_ms: int) -> None:
        if self._rested_ms(at_ms) >= ADOPTED_MS:
            self._foreground.adopt()
        self._foreground.begin()
        self._displacement.begin()
        self._since_ms, self._judged_ms = at_ms, None
        self.brake = replace(self.brake, state="half_open", share=self._pressure.share)
