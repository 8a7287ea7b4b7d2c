"""Braking: what each replica's breaker is told, and what holds there for a warm-up that would begin now (D16).

Who speaks for a replica has its breaker and tells it of every look, KV event and outcome. The other executors hear from
that one what holds (`executor.brake_words`). Where nobody says anything nothing is held back.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from analytics.breaker import Brake, Breaker, Reading
from analytics.breaker_rules import Load
from analytics.foreground import Counters
from analytics.policy_sections import BreakerPolicy
from connectors.engines.base import EngineMetrics
from connectors.engines.events import BlocksCleared, BlocksRemoved, BlocksStored, Gap, KvEvent
from connectors.metrics import SILENT, MetricSink
from executor.admission import held_by_breaker
from executor.orders import Work
from executor.outcomes import Ending
from schemas import ReplicaSample, WarmupCommand, WarmupOutcome

FREE = Brake()
UNSEEN = Brake(share=0.0, reasons=("unseen",))
"""Of a replica that this executor has begun to speak for and not looked at yet: a matter of a second."""
RECENT_OUTCOMES = 4_096
_STATES = ("closed", "half_open", "open")
_RANKS = 1_024
"""More ranks than a replica has: a block's name and its rank's number make one name."""


class Braking:
    """The brakes of all replicas, as this executor knows them.

    Args:
        policy: section `breaker` as it is now.
        pressure: how short of memory this host is, see `executor.host`.
        now_ms: wall clock.
        time_scale: of the whole of Stoker; breakers live in unscaled time.
    """

    def __init__(
        self,
        policy: Callable[[], BreakerPolicy],
        pressure: Callable[[], float | None],
        now_ms: Callable[[], int],
        time_scale: float = 1.0,
        metrics: MetricSink = SILENT,
    ) -> None:
        self._policy = policy
        self._pressure = pressure
        self._now_ms = now_ms
        self._scale = time_scale
        self._metrics = metrics
        self._breakers: dict[str, Breaker] = {}
        self._unseen: set[str] = set()
        self._told: dict[str, Brake] = {}
        self._known: dict[str, Brake] = {}
        self._running: Counter[str] = Counter()
        self._block_tokens: dict[str, int] = {}
        self._recent: deque[WarmupOutcome] = deque(maxlen=RECENT_OUTCOMES)
        self._listeners: list[Callable[[str], None]] = []

    def on_change(self, listener: Callable[[str], None]) -> None:
        """`listener` is told of each replica where something else holds than before."""
        self._listeners.append(listener)

    # -- what holds ----------------------------------------------------------------------------------------------------

    def brake(self, replica: str) -> Brake:
        """What holds at a replica."""
        if replica in self._unseen:
            return UNSEEN if self._policy().enabled else FREE
        breaker = self._breakers.get(replica)
        return self._told.get(replica, FREE) if breaker is None else breaker.brake

    def refuses(self, command: WarmupCommand, replica: str) -> tuple[str, ...]:
        """Why a command is not even let to wait; empty where it is."""
        if not held_by_breaker(command):
            return ()
        brake = self.brake(replica)
        return brake.reasons or (brake.state,) if brake.says(command.qos) == "refuse" else ()

    def admits(self, work: Work, places: int) -> bool:
        """Whether a work that waits may begin now.

        What has expired may: it is only told so.

        Args:
            places: warm-ups that run at once on a replica when nothing holds them.
        """
        command = work.command
        if not held_by_breaker(command) or self._now_ms() >= command.expires_at_ms:
            return True
        brake = self.brake(work.replica)
        if brake.says(command.qos) != "go":
            return False
        return command.qos == "guaranteed" or self._running[work.replica] < brake.places(places)

    # -- what breakers are told ----------------------------------------------------------------------------------------

    def watch(self, replica: str) -> None:
        """This executor speaks for a replica from now on: its breaker begins, and hears what was warmed of late."""
        self._breakers[replica] = breaker = Breaker()
        self._unseen.add(replica)
        for outcome in self._recent:
            if outcome.replica == replica:
                self._hear(breaker, outcome)
        for _ in range(self._running[replica]):
            breaker.began(self._at_ms())
        self._changed(replica)

    def unwatch(self, replica: str) -> None:
        """It does so no longer."""
        self._breakers.pop(replica, None)
        self._unseen.discard(replica)
        self._known.pop(replica, None)
        for state in _STATES:
            self._metrics.level("stoker_executor_breaker_state_count", 0, replica=replica, state=state)
        self._notify(replica)

    @property
    def watched(self) -> dict[str, Brake]:
        """What holds at the replicas that this executor speaks for."""
        return {replica: self.brake(replica) for replica in self._breakers}

    def tell(self, told: dict[str, Brake]) -> None:
        """What other executors say of the replicas that they speak for, all of it. Theirs is the one probe."""
        before, self._told = self._told, told
        for replica in before.keys() | told.keys():
            if before.get(replica, FREE) != told.get(replica, FREE) and replica not in self._breakers:
                self._notify(replica)

    def looked(self, replica: str, metrics: EngineMetrics | None, sample: ReplicaSample) -> None:
        """A replica was looked at; `metrics` is None if it did not answer."""
        breaker = self._breakers.get(replica)
        if breaker is None:
            return
        self._unseen.discard(replica)
        self._block_tokens[replica] = sample.block_tokens
        reading = None if metrics is None else self._reading(metrics, sample)
        breaker.look(self._at_ms(), reading, self._pressure(), self._policy())
        self._changed(replica)

    def _reading(self, metrics: EngineMetrics, sample: ReplicaSample) -> Reading:
        """Durations stay as users met them; rates and budgets are those of unscaled time."""
        first, p99_ms = metrics.ttft_s, sample.ttft_p99_ms
        return Reading(
            sample.incarnation,
            Load(
                sample.kv_usage,
                sample.waiting,
                (sample.allocations_per_s or 0.0) / self._scale,
                None if p99_ms is None else p99_ms * self._scale,
            ),
            Counters(
                tuple(bound * 1_000 for bound in first.bounds),
                first.counts,
                metrics.prefix_query_tokens,
                metrics.prefix_hit_tokens,
            ),
            metrics.blocks_total,
        )

    def event(self, replica: str, event: KvEvent) -> None:
        """A KV event of a replica."""
        breaker = self._breakers.get(replica)
        if breaker is None:
            return
        at_ms, policy = self._at_ms(), self._policy()
        match event:
            case BlocksStored() if event.medium == "GPU":
                breaker.stored(at_ms, [block * _RANKS + event.rank for block in event.hashes], policy)
            case BlocksRemoved() if event.medium == "GPU":
                breaker.removed(at_ms, [block * _RANKS + event.rank for block in event.hashes], policy)
                self._changed(replica)
            case Gap() | BlocksCleared():
                breaker.cleared(at_ms)

    def heard(self, outcome: WarmupOutcome) -> None:
        """An outcome of any executor, perhaps of before this one began."""
        if outcome.status not in ("applied", "resident") or outcome.action not in ("warm", "load", "pin"):
            return
        self._recent.append(outcome)
        breaker = self._breakers.get(outcome.replica)
        if breaker is not None:
            self._hear(breaker, outcome)

    def _hear(self, breaker: Breaker, outcome: WarmupOutcome) -> None:
        breaker.warmed(
            self._at_ms(outcome.finished_at_ms),
            (outcome.scope, outcome.target_key),
            outcome.tokens_warmed,
            outcome.tokens_already_resident,
            outcome.apply_ms,
            self._block_tokens.get(outcome.replica, 16),
            self._policy(),
        )

    def began(self, work: Work) -> None:
        """A work was taken out of the line."""
        if not held_by_breaker(work.command):
            return
        self._running[work.replica] += 1
        breaker = self._breakers.get(work.replica)
        if breaker is not None:
            breaker.began(self._at_ms())

    def ended(self, work: Work, ending: Ending | None) -> None:
        """It came to its end; None if somebody else settles it."""
        if not held_by_breaker(work.command):
            return
        self._running[work.replica] -= 1
        if not self._running[work.replica]:
            del self._running[work.replica]
        breaker = self._breakers.get(work.replica)
        if breaker is not None:
            breaker.ended(self._at_ms(), ending is not None and ending.present)
        self._notify(work.replica)

    def _at_ms(self, wall_ms: int | None = None) -> int:
        return round((self._now_ms() if wall_ms is None else wall_ms) * self._scale)

    # -- who hears of it -----------------------------------------------------------------------------------------------

    def _changed(self, replica: str) -> None:
        brake, before = self.brake(replica), self._known.get(replica)
        if brake == before:
            return
        self._known[replica] = brake
        for state in _STATES:
            level = float(state == brake.state)
            self._metrics.level("stoker_executor_breaker_state_count", level, replica=replica, state=state)
        self._metrics.level("stoker_executor_breaker_share_ratio", brake.share, replica=replica)
        if brake.state == "open" and (before is None or before.state != "open"):
            for cause in brake.reasons:
                self._metrics.count("stoker_executor_breaker_trips_total", replica=replica, cause=cause)
        self._notify(replica)

    def _notify(self, replica: str) -> None:
        for listener in self._listeners:
            listener(replica)
