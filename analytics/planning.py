"""The plan of one pool: what it hears, when it plans, and what it says (D15, simple form).

A planner lives in event time. Two lanes: *fast* answers an envelope at once (a query's second sight, a hot prefix that
a replica lost), *tick* looks at everything once a second. Each target and bucket has at most one live command. While
event time lags too far behind wall time nothing is issued, since a command would be old before it is read.

Here is what all pools share; `engine_planning` and `redis_planning` add what theirs holds, `planners` picks one.

Every change is written to the store before a call returns: a planner built over a copy of it goes on with the same
bytes. Sections of the store: f focus, i minutes, l loans, n announced, p replicas, s planner, t targets, y budget, z
scopes whose texts are nowhere, and those of the pool's kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from analytics.choosing import Choice, LeftOut
from analytics.commands import NO_ALLOWANCE, TOP_PRIORITY, Allowance, Draft, Offer, priority_of
from analytics.envelopes import Partial, Tag, body_of, open_as, seal, tag_of
from analytics.focused import Focused
from analytics.minutes import MINUTES_KEPT
from analytics.own_policy import DraftOf, ranked
from analytics.policy import PolicyBook
from analytics.pool_state import PoolState
from analytics.pools import envelope_key
from analytics.replicas import Ready
from analytics.tick import Tick
from schemas import Alternative, Announcement, PlannerState, ReplicaSample, Residency, WarmupOutcome, decode, encode

ANNOUNCED_PRIORITY = 900

CONTROL: tuple[Any, ...] = (ReplicaSample, WarmupOutcome, Residency, Announcement)


class Planner(PoolState, ABC):
    """The planner of one pool: what pools of every kind share."""

    @property
    def blank(self) -> bool:
        """Whether it holds nothing: a new one over the same store is the same, so this one need not be kept.

        Producers name pools. One that no replica and no request is of any more leaves nothing behind.
        """
        return self.next_timer_ms is None and not self._holds_shared and not self._holds

    def on_envelope(self, envelope: bytes, watermark_ms: int, wall_ms: int, policy: PolicyBook) -> list[bytes]:
        """Hears one envelope of this pool; `Tag` says which go to plan.

        Args:
            watermark_ms: where event time stands; 0 before it began.
            wall_ms: only to see how far event time lags.

        Returns:
            COMMAND envelopes of the fast lane, and INSIGHT envelopes.
        """
        tag = tag_of(envelope)
        if tag == Tag.CONTROL:
            return self._on_control(body_of(envelope), watermark_ms, wall_ms, policy)
        if tag == Tag.PARTIAL:
            self._on_partial(open_as(envelope, Partial), watermark_ms, policy)
            return []
        if tag == Tag.FOCUSED:
            self._on_focused(open_as(envelope, Focused), watermark_ms)
            return []
        return self._on_own(envelope, watermark_ms, wall_ms, policy)

    def on_timer(self, at_ms: int, wall_ms: int, policy: PolicyBook) -> list[bytes]:
        """A tick: judges minutes that ended, plans, and once a slide says what it is doing.

        Returns:
            COMMAND and INSIGHT envelopes. A timer that is no longer wanted does nothing.
        """
        if self.next_timer_ms is None or at_ms < self.next_timer_ms:
            return []
        behind, report = self._behind(at_ms, wall_ms, policy), self._clock.report_due(at_ms)
        tick = Tick(at_ms, wall_ms, self._fleet.ready(at_ms), behind, report, policy)
        out = self._judge(at_ms, tick.ready, policy)
        self._memory.forget(at_ms)
        self._announced.forget(at_ms)
        self._forget(at_ms)
        self._share()
        self._lending.forget(at_ms)
        self._budget.forget(at_ms, lambda scope: self._allowance(scope, tick.ready, policy))
        if not behind:
            out += self._prepare(at_ms, policy)
        out += self._plan(tick)
        busy = self._busy_shared or self._busy(at_ms)
        self._clock.ticked(at_ms, busy)
        if not busy:
            self._crowds.focus(at_ms)  # drops what is over
        if self.blank:
            self._clock.clear()
        else:
            self._clock.write()
        return out

    # What a pool's kind adds

    @property
    @abstractmethod
    def _holds(self) -> bool:
        """Whether it holds something of its own, even if no tick has to do with it."""

    @abstractmethod
    def _busy(self, at_ms: int) -> bool:
        """Whether a later tick may have something of its own to do, though nothing more is heard."""

    @abstractmethod
    def _on_own(self, envelope: bytes, watermark_ms: int, wall_ms: int, policy: PolicyBook) -> list[bytes]:
        """Hears what only pools of its kind hear; all else is not its business."""

    @abstractmethod
    def _on_counts(self, partial: Partial, before: Partial, policy: PolicyBook) -> None:
        """Takes totals that are news, with those that they replace."""

    @abstractmethod
    def _forget(self, at_ms: int) -> None:
        """Drops what is over."""

    @abstractmethod
    def _share(self) -> None:
        """Tells who spends although nothing of theirs may be hot."""

    @abstractmethod
    def _plan(self, tick: Tick) -> list[bytes]:
        """Commands of a tick, unless it is behind, and the report where it is due."""

    @abstractmethod
    def _allowance(self, scope: str, ready: Ready, policy: PolicyBook) -> Allowance:
        """What a scope may spend in this pool."""

    @abstractmethod
    def _stay_ms(self, scope: str, policy: PolicyBook) -> int:
        """How long what was seen here is taken as resident; unscaled."""

    @abstractmethod
    def _life_ms(self, policy: PolicyBook) -> int:
        """How long a command for every scope lives; unscaled."""

    # What it hears

    def _on_control(self, body: bytes, watermark_ms: int, wall_ms: int, policy: PolicyBook) -> list[bytes]:
        message: ReplicaSample | WarmupOutcome | Residency | Announcement = decode(body, *CONTROL)
        if isinstance(message, ReplicaSample):
            self._fleet.on_sample(message)
            return []
        self._clock.arm(watermark_ms, message.event_time_ms)
        if isinstance(message, Residency):
            return self._on_residency(message, watermark_ms, wall_ms, policy)
        if isinstance(message, Announcement):
            return self._on_announcement(message, watermark_ms, wall_ms, policy)
        self._on_outcome(message, policy)
        return []

    def _on_partial(self, partial: Partial, watermark_ms: int, policy: PolicyBook) -> None:
        if partial.pane_start_ms // self._window.minute_ms <= self._clock.judged - MINUTES_KEPT:
            return
        before = self._window.add(partial)
        if before is None:
            return
        self._on_counts(partial, before, policy)
        self._clock.arm(watermark_ms, partial.at_ms)

    def _on_focused(self, focused: Focused, watermark_ms: int) -> None:
        self._crowds.on_focused(focused)
        self._clock.arm(watermark_ms, focused.at_ms)

    def _on_outcome(self, outcome: WarmupOutcome, policy: PolicyBook) -> None:
        self._settle(outcome, self._stay_ms(outcome.scope, policy))

    def _on_residency(self, message: Residency, _watermark_ms: int, _wall_ms: int, policy: PolicyBook) -> list[bytes]:
        self._observe(message, self._stay_ms(message.scope, policy), policy)
        return []

    def _on_announcement(
        self, message: Announcement, watermark_ms: int, wall_ms: int, policy: PolicyBook
    ) -> list[bytes]:
        at_ms = self._clock.not_before_tick(message.announced_at_ms)
        ready = self._fleet.ready(at_ms)
        over = self._announced.withdrawal(message, at_ms, ready, policy) if message.deleted else []
        news = self._announced.on_announcement(message)
        self._share()
        self._clock.write()
        if not news or self._behind(watermark_ms, wall_ms, policy):
            return []
        out: list[bytes] = []
        for draft in over:
            out += self._fast(draft, at_ms, TOP_PRIORITY, NO_ALLOWANCE, policy)
        return out + self._prepare(at_ms, policy)

    # What it does

    def _prepare(self, at_ms: int, policy: PolicyBook) -> list[bytes]:
        """What announced changes ask for now."""
        if not self._announced:
            return []
        ready = self._fleet.ready(at_ms)
        out: list[bytes] = []
        for draft in self._announced.drafts(at_ms, ready, policy)[: self._config.max_commands]:
            out += self._fast(draft, at_ms, ANNOUNCED_PRIORITY, self._allowance(draft.scope, ready, policy), policy)
        return out

    def _fast(self, draft: Draft, at_ms: int, priority: int, allowance: Allowance, policy: PolicyBook) -> list[bytes]:
        paid = self._issuer.pay(draft, at_ms, allowance)
        if paid is None:
            return []
        self._clock.issued += 1
        self._clock.write()
        return [self._issuer.command(paid, at_ms, "fast", priority, policy)]

    def _ranked(
        self, offers: Iterable[Offer], draft_of: DraftOf, at_ms: int
    ) -> tuple[Iterable[Offer], DraftOf, dict[str, float]]:
        """A tick's offers, best first, as the deployment's own policy ranks them, if it has one; see `ranked`."""
        return ranked(self._config.own, self._pool, at_ms, offers, draft_of)

    def _chosen(self, choice: Choice, tick: Tick) -> list[bytes]:
        """The commands of what a tick has chosen, best first."""
        among = len(choice.paid)
        self._clock.issued += among
        told = [paid._replace(draft=self._crowds.told(paid.draft, tick.at_ms, tick.policy)) for paid in choice.paid]
        return [
            self._issuer.command(paid, tick.at_ms, "tick", self._priority(paid.draft, rank, among), tick.policy)
            for rank, paid in enumerate(told)
        ]

    def _priority(self, _draft: Draft, rank: int, among: int) -> int:
        """Of what a tick has chosen."""
        return priority_of(rank, among)

    def _behind(self, event_ms: int, wall_ms: int, policy: PolicyBook) -> bool:
        """Whether event time lags by more than half of a command's life."""
        return wall_ms - event_ms > self._config.life_ms(self._life_ms(policy)) / 2

    def _report(
        self,
        tick: Tick,
        frozen: bool,
        candidates: int,
        suppressed: int,
        evidence: Mapping[str, float],
        left_out: Iterable[LeftOut],
    ) -> bytes:
        state = PlannerState(
            pool=self._pool,
            at_ms=tick.at_ms,
            state="catching_up" if tick.behind else "frozen" if frozen else "planning",
            lag_ms=max(0, tick.wall_ms - tick.at_ms),
            candidates=candidates,
            issued=self._clock.reported(tick.at_ms),
            suppressed=suppressed,
            evidence={**evidence, "targets": float(len(self._memory))},
            left_out=tuple(map(_told, left_out)),
        )
        return seal(Tag.INSIGHT, envelope_key(self._pool), encode(state))


def _told(left: LeftOut) -> Alternative:
    draft = left.draft
    return Alternative(
        draft.scope, draft.key, draft.trigger, max(0.0, left.rank), draft.worth.density, draft.charge * draft.copies
    )
