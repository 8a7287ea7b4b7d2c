"""What every planner keeps of its pool: replicas, targets, what was spent, minutes, and announced changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from analytics.announced_planning import AnnouncedPlanner
from analytics.budget import Budget
from analytics.commands import Issuer
from analytics.crowds import CrowdWatch
from analytics.decay import Decay
from analytics.lending import Lending
from analytics.memory import TargetMemory
from analytics.minutes import MINUTES_KEPT, MinuteWindow
from analytics.plan_config import PlanConfig
from analytics.planner_clock import PlannerClock
from analytics.policy import PolicyBook
from analytics.pools import is_redis
from analytics.records import Section
from analytics.replicas import COLD_START_MS, Fleet, Ready, incarnation_mark
from analytics.scope_rests import ScopeRests
from analytics.statements import stays_until
from analytics.stores import MapStore
from schemas import Residency, WarmupOutcome

Reader = Callable[[bytes], None]
KeyedReader = Callable[[str, bytes], None]


class PoolState:
    """What every planner keeps of its pool.

    Args:
        config: settings.
        pool: a group of GPU replicas, or `redis:<name>`.
        store: where its state survives. Whatever it holds is restored by the planner of the pool's kind.
    """

    def __init__(self, config: PlanConfig, pool: str, store: MapStore) -> None:
        self._config = config
        self._pool = pool
        self._store = store
        longest_rest_ms = config.scaled(config.longest_rest_ms)
        self._rests = ScopeRests(longest_rest_ms, Section(store, "z"))
        self._memory = TargetMemory(config.max_targets, Section(store, "t"), self._rests, longest_rest_ms)
        self._budget = Budget(Section(store, "y"))
        self._lending = Lending(2 * config.scaled_tick_ms, Section(store, "l"))
        self._issuer = Issuer(pool, self._memory, self._budget, self._lending)
        decay, cold_ms = Decay.half_life(config.scaled(config.half_life_ms)), config.scaled(COLD_START_MS)
        self._fleet = Fleet(config.stale_ms, decay, Section(store, "p"), cold_ms)
        self._window = MinuteWindow(config.scaled_pane_ms, Section(store, "i"))
        self._crowds = CrowdWatch(self._window, Section(store, "f"))
        self._announced = AnnouncedPlanner(config, self._memory, is_redis(pool), Section(store, "n"))
        self._clock = PlannerClock(config, Section(store, "s"))

    @property
    def next_timer_ms(self) -> int | None:
        """Event time of the next tick; None while there is nothing to plan."""
        return self._clock.next_timer_ms

    @property
    def _holds_shared(self) -> bool:
        """Whether any of this is held, even if no tick has to do with it."""
        spent = self._budget, self._lending
        return any((self._fleet, *spent, self._crowds, len(self._memory), self._rests, self._announced))

    @property
    def _busy_shared(self) -> bool:
        """Whether a later tick may have something to do with any of this, though nothing more is heard."""
        return any((self._window, len(self._memory), self._rests, self._announced))

    def _settle(self, outcome: WarmupOutcome, stay_ms: int) -> None:
        """Remembers an outcome and gives back what it did not use.

        Args:
            stay_ms: unscaled; an announced value stays for its own time to live.
        """
        stay_ms = self._announced.ttl_ms(outcome.scope, outcome.target_key) or stay_ms
        unused = self._memory.on_outcome(outcome, self._fleet.mark(outcome.replica), self._config.scaled(stay_ms))
        self._budget.refund(outcome.scope, unused)

    def _observe(self, message: Residency, stay_ms: int, policy: PolicyBook) -> bool:
        """Remembers what a replica holds; says whether it is news that a target was lost there.

        Args:
            stay_ms: how long what was seen is taken as resident; unscaled.
        """
        scope, key, replica = message.scope, message.target_key, message.replica
        mark, held = incarnation_mark(message.incarnation), self._memory.get(scope, key)
        held_until_ms = held.resident_until(replica, mark) if held is not None else 0
        until_ms = stays_until(message, policy.plan(scope).lost_share, self._config.scaled(stay_ms), held_until_ms)
        news = self._memory.on_residency(scope, key, replica, mark, message.observed_at_ms, until_ms)
        return news and until_ms == 0

    def _judge(self, at_ms: int, ready: Ready, policy: PolicyBook) -> list[bytes]:
        """Judges the minutes that have ended; INSIGHT envelopes of what was found."""
        clock = self._clock
        ended = (at_ms - self._config.scaled_settle_ms) // self._window.minute_ms - 1
        out: list[bytes] = []
        first = clock.judged + 1 if clock.judged >= 0 else ended
        for minute in range(max(first, ended - MINUTES_KEPT + 1), ended + 1):
            out += self._crowds.judge(minute, len(ready.names), self._config.reference_replicas, policy)
        if ended > clock.judged:
            clock.judged = ended
            self._window.forget(ended - MINUTES_KEPT + 1)
        return out

    def _restore(self, own: Mapping[str, Reader], keyed: Mapping[str, KeyedReader]) -> None:
        """Takes back all that the store holds, in the order of keys.

        Args:
            own: who reads a record of a section of the pool's kind.
            keyed: of sections with parts: who also needs the rest of a record's key.
        """
        readers: dict[str, Reader] = {
            "f": self._crowds.restore,
            "i": self._window.restore,
            "l": self._lending.restore,
            "n": self._announced.restore,
            "p": self._fleet.restore,
            "s": self._clock.restore,
            "t": self._memory.restore,
            "y": self._budget.restore,
            "z": self._rests.restore,
            **own,
        }
        for key, blob in sorted(self._store.items()):
            if key[0] in keyed:
                keyed[key[0]](key[1:], blob)
            else:
                readers[key[0]](blob)
