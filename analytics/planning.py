"""The plan of one pool: what it hears, when it plans, and what it says (D15, simple form).

A planner lives in event time. Two lanes: *fast* answers an envelope at once (a query's second sight, a hot prefix that
a replica lost), *tick* looks at everything once a second. Each target and bucket has at most one live command. While
event time lags too far behind wall time nothing is issued, since a command would be old before it is read.

Every change is written to the store before a call returns: a planner built over a copy of it goes on with the same
bytes. Sections of the store: a answers, c clusters, d adapters, f focus, h patterns, i minutes, k known queries, m
managed prompts, n announced, p replicas, q demand, r rewards, s planner, t targets, u queues, x prefixes, y budget.
"""

from __future__ import annotations

from typing import Any

from analytics.adapter_planning import AdapterPlanner
from analytics.announced_planning import AnnouncedPlanner
from analytics.answer_planning import RESPONSE, AnswerPlanner
from analytics.budget import Budget
from analytics.choosing import Choice, choose
from analytics.cluster_planning import ClusterPlanner
from analytics.commands import Allowance, Draft, Issuer, priority_of
from analytics.crowds import CrowdWatch
from analytics.embedding_planning import EmbeddingPlanner
from analytics.envelopes import Answered, Embedded, Partial, Rewarded, Tag, body_of, open_as, seal, tag_of
from analytics.memory import TargetMemory, kept_share
from analytics.minutes import MINUTES_KEPT, MinuteWindow
from analytics.pattern_planning import PatternPlanner, priority_of_pattern
from analytics.plan_config import PlanConfig
from analytics.policy import PolicyBook
from analytics.pools import envelope_key, is_redis
from analytics.prefix_planning import PrefixPlanner
from analytics.prompt_planning import PromptPlanner
from analytics.prompt_usage import PromptUse
from analytics.records import Record, Section, pack, unpack
from analytics.replicas import Fleet, Ready, incarnation_mark
from analytics.reward_book import RewardBook
from analytics.scoring import DemandQueue
from analytics.stores import MapStore
from analytics.turns import SessionPattern
from schemas import EVERY_SCOPE, Announcement, PlannerState, ReplicaSample, Residency, WarmupOutcome, decode, encode

FAST_PREFIX_PRIORITY = 999
"""A hot prefix that was lost goes before everything that is merely likely."""
FAST_EMBEDDING_PRIORITY = 700
ANNOUNCED_PRIORITY = 900
WITHDRAWAL_PRIORITY = 999
NO_ALLOWANCE = Allowance(0.0, 0.0)
"""For what costs nothing."""

CONTROL: tuple[Any, ...] = (ReplicaSample, WarmupOutcome, Residency, Announcement)

__all__ = ["PlanConfig", "Planner"]


class PlannerRecord(Record, frozen=True, array_like=True):
    """Where a planner stands.

    Attributes:
        judged: the last minute that was judged; -1 before the first.
        ticked_ms: the last tick; no command is older. reported_ms: the last slide's report.
        issued: commands of both arms since then.
    """

    next_timer_ms: int | None
    judged: int
    ticked_ms: int
    reported_ms: int
    issued: int


class Planner:
    """The planner of one pool.

    Args:
        config: settings.
        pool: a group of GPU replicas, or `redis:<name>`.
        store: where its state survives. Whatever it holds is restored here.
    """

    def __init__(self, config: PlanConfig, pool: str, store: MapStore) -> None:
        self._config = config
        self._pool = pool
        self._store = store
        self._redis = is_redis(pool)
        self._memory = TargetMemory(config.max_targets, Section(store, "t"), config.scaled(config.longest_rest_ms))
        self._budget = Budget(Section(store, "y"))
        self._issuer = Issuer(pool, self._memory, self._budget)
        self._fleet = Fleet(config.stale_ms, Section(store, "p"))
        self._window = MinuteWindow(config.scaled_pane_ms, Section(store, "i"))
        self._crowds = CrowdWatch(self._window, Section(store, "f"))
        self._rewards = RewardBook(config.max_judged, Section(store, "r"))
        self._queue = DemandQueue(Section(store, "q"), Section(store, "u"), self._rewards)
        self._prefixes = PrefixPlanner(config, self._memory, Section(store, "x"))
        self._embeddings = EmbeddingPlanner(config, self._memory, self._queue, Section(store, "k"))
        self._answers = AnswerPlanner(
            config, self._memory, self._queue, self._rewards, self._embeddings, Section(store, "a")
        )
        self._clusters = ClusterPlanner(config, self._embeddings, Section(store, "c"))
        self._announced = AnnouncedPlanner(config, self._memory, self._redis, Section(store, "n"))
        self._adapters = AdapterPlanner(config, pool, self._memory, self._fleet, store)
        self._patterns = PatternPlanner(config, self._memory, self._prefixes, Section(store, "h"))
        self._prompts = PromptPlanner(config, pool, self._memory, self._prefixes, store)
        self._next_timer_ms: int | None = None
        self._judged = -1
        self._ticked_ms = 0
        self._reported_ms = 0
        self._issued = 0
        self._restore()

    @property
    def next_timer_ms(self) -> int | None:
        """Event time of the next tick; None while there is nothing to plan."""
        return self._next_timer_ms

    @property
    def blank(self) -> bool:
        """Whether it holds nothing: a new one over the same store is the same, so this one need not be kept.

        Producers name pools. One that no replica and no request is of any more leaves nothing behind.
        """
        held = (
            self._fleet,
            self._budget,
            self._crowds,
            self._embeddings.known,
            len(self._memory),
            self._announced,
            self._clusters,
            len(self._rewards),
            len(self._answers),
        )
        return self._next_timer_ms is None and not any((*held, self._adapters, self._patterns, self._prompts))

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
        if tag == Tag.CANDIDATES:
            self._arm(watermark_ms, self._prefixes.on_candidates(body_of(envelope)))
            return []
        if tag == Tag.PARTIAL:
            self._on_partial(open_as(envelope, Partial), watermark_ms, policy)
            return []
        if tag == Tag.CLUSTERED and self._redis:
            self._arm(watermark_ms, self._clusters.on_clustered(body_of(envelope)))
            return []
        if tag in (Tag.REWARDED, Tag.ANSWER) and self._redis:
            return self._on_judged(envelope, watermark_ms, wall_ms, policy)
        if tag == Tag.EMBEDDED:
            return self._on_embedded(open_as(envelope, Embedded), watermark_ms, wall_ms, policy)
        if tag == Tag.PROMPTS:
            return self._on_prompts(open_as(envelope, PromptUse), watermark_ms, policy)
        if tag == Tag.PATTERN:
            return self._on_pattern(open_as(envelope, SessionPattern), watermark_ms, wall_ms, policy)
        return []

    def on_timer(self, at_ms: int, wall_ms: int, policy: PolicyBook) -> list[bytes]:
        """A tick: judges minutes that ended, plans, and once a slide says what it is doing.

        Returns:
            COMMAND and INSIGHT envelopes. A timer that is no longer wanted does nothing.
        """
        if self._next_timer_ms is None or at_ms < self._next_timer_ms:
            return []
        ready = self._fleet.ready(at_ms)
        out = self._judge(at_ms, len(ready.names), policy)
        self._memory.forget(at_ms)
        self._prefixes.expire(at_ms)
        self._clusters.expire(at_ms)
        self._announced.forget(at_ms)
        self._adapters.forget(at_ms)
        self._patterns.forget(at_ms)
        self._prompts.forget(at_ms)
        self._share()
        self._embeddings.shrink()
        pane_ms, settle_ms = self._config.scaled_pane_ms, self._config.scaled_settle_ms
        report = (at_ms - settle_ms) // pane_ms > (self._reported_ms - settle_ms) // pane_ms
        behind = self._behind(at_ms, wall_ms, policy)
        if not behind:
            out += self._prepare(at_ms, policy)
            out += self._plan_adapters(at_ms, ready, policy)
            out += self._plan_prompts(at_ms, ready, policy)
        out += (
            self._plan_embeddings(at_ms, wall_ms, behind, report, policy)
            if self._redis
            else self._plan_prefixes(at_ms, wall_ms, behind, report, policy)
        )
        self._ticked_ms = at_ms
        tick_ms = self._config.scaled_tick_ms
        kept = (
            self._prefixes,
            self._window,
            self._queue,
            self._embeddings.owed,
            len(self._memory),
            self._announced,
            self._clusters,
            len(self._rewards),
            len(self._answers),
        )
        busy = any(kept) or bool(self._patterns) or self._prompts.busy or self._adapters.busy(at_ms)
        self._next_timer_ms = (at_ms // tick_ms + 1) * tick_ms if busy else None
        if not busy:
            self._crowds.focus(at_ms)  # drops what is over
        if self.blank:
            self._judged, self._ticked_ms, self._reported_ms, self._issued = -1, 0, 0, 0
            self._store.remove("s")
        else:
            self._write()
        return out

    # What it hears

    def _on_control(self, body: bytes, watermark_ms: int, wall_ms: int, policy: PolicyBook) -> list[bytes]:
        message: ReplicaSample | WarmupOutcome | Residency | Announcement = decode(body, *CONTROL)
        if isinstance(message, ReplicaSample):
            self._fleet.on_sample(message)
            return []
        self._arm(watermark_ms, message.event_time_ms)
        if isinstance(message, Residency):
            return self._on_residency(message, watermark_ms, wall_ms, policy)
        if isinstance(message, Announcement):
            return self._on_announcement(message, watermark_ms, wall_ms, policy)
        self._on_outcome(message, policy)
        return []

    def _on_partial(self, partial: Partial, watermark_ms: int, policy: PolicyBook) -> None:
        queries = partial.dimension == "query"
        if queries and not self._redis and self._config.redis_pool:
            return
        if partial.pane_start_ms // self._window.minute_ms <= self._judged - MINUTES_KEPT:
            return
        before = self._window.add(partial)
        if before is None:
            return
        if queries and self._redis:
            counted = {key.key: key.count for key in before.top}
            middle_ms = partial.pane_start_ms + self._config.scaled_pane_ms // 2
            mean_life_ms = self._config.scaled(policy.score(partial.scope).decay_ms)
            for key in partial.top:
                arrivals = key.count - counted.get(key.key, 0)
                if arrivals > 0:
                    self._queue.add(partial.scope, key.key, arrivals, middle_ms, mean_life_ms)
        if not self._redis:
            self._adapters.on_partial(partial, before)
        self._arm(watermark_ms, partial.at_ms)

    def _on_outcome(self, outcome: WarmupOutcome, policy: PolicyBook) -> None:
        plan = policy.plan(outcome.scope)
        stay_ms = plan.embedding_resident_ms if self._redis else plan.prefix_resident_ms
        if outcome.target_key.startswith(RESPONSE):
            stay_ms = plan.response_resident_ms
        mark = self._fleet.mark(outcome.replica)
        if self._adapters.on_outcome(outcome, mark, policy):
            return
        unused = self._memory.on_outcome(outcome, mark, self._config.scaled(stay_ms))
        self._budget.refund(outcome.scope, unused)
        self._prefixes.touched(outcome.scope)

    def _on_residency(self, message: Residency, watermark_ms: int, wall_ms: int, policy: PolicyBook) -> list[bytes]:
        plan = policy.plan(message.scope)
        stay_ms = self._config.scaled(plan.embedding_resident_ms if self._redis else plan.prefix_resident_ms)
        mark = incarnation_mark(message.incarnation)
        kept = kept_share(message)
        gone = kept < 1 - plan.lost_share
        until_ms = 0 if gone else message.observed_at_ms + stay_ms
        if not gone and kept < 1:
            # What has begun to go is not promised longer than it was.
            held = self._memory.get(message.scope, message.target_key)
            until_ms = min(until_ms, held.resident_until(message.replica, mark) if held else until_ms) or until_ms
        news = self._memory.on_residency(
            message.scope, message.target_key, message.replica, mark, message.observed_at_ms, until_ms
        )
        self._prefixes.touched(message.scope)
        known_mark = self._fleet.mark(message.replica)
        if not gone or not news or self._redis or (known_mark and known_mark != mark):
            return []
        at_ms = max(message.observed_at_ms, self._ticked_ms)
        if self._behind(watermark_ms, wall_ms, policy):
            return []
        ready = self._fleet.ready(at_ms)
        draft = self._prefixes.rewarm(message.scope, message.target_key, message.replica, at_ms, ready, policy)
        if draft is None:
            return []
        allowance = self._prefixes.allowance(message.scope, ready, policy)
        return self._fast(draft, at_ms, FAST_PREFIX_PRIORITY, allowance, policy)

    def _on_announcement(
        self, message: Announcement, watermark_ms: int, wall_ms: int, policy: PolicyBook
    ) -> list[bytes]:
        news = self._announced.on_announcement(message)
        if not self._redis:
            self._adapters.on_announcement(message)
            self._prompts.on_announcement(message)
        self._share()
        self._write()
        if not news or self._behind(watermark_ms, wall_ms, policy):
            return []
        return self._prepare(max(message.announced_at_ms, self._ticked_ms), policy)

    def _on_embedded(self, embedded: Embedded, watermark_ms: int, wall_ms: int, policy: PolicyBook) -> list[bytes]:
        if not self._redis:
            return []
        self._embeddings.on_embedded(embedded)
        self._arm(watermark_ms, embedded.at_ms)
        if self._behind(watermark_ms, wall_ms, policy):
            return []
        scope, query = embedded.scope, embedded.query
        at_ms = max(embedded.at_ms, self._ticked_ms)
        draft = self._embeddings.fast(scope, query, at_ms, policy)
        if draft is None:
            self._embeddings.settled(scope, query)
            return []
        allowance = self._embeddings.allowance(scope, policy)
        out = self._fast(draft, at_ms, FAST_EMBEDDING_PRIORITY, allowance, policy)
        if out:
            self._embeddings.settled(scope, query)
        return out

    def _on_judged(self, envelope: bytes, watermark_ms: int, wall_ms: int, policy: PolicyBook) -> list[bytes]:
        if tag_of(envelope) == Tag.ANSWER:
            answered = open_as(envelope, Answered)
            self._answers.on_answer(answered)
            self._arm(watermark_ms, answered.at_ms)
            return []
        earned = self._rewards.take(open_as(envelope, Rewarded))
        scope, at_ms = earned.scope, max(earned.at_ms, self._ticked_ms)
        self._arm(watermark_ms, earned.at_ms)
        out = [seal(Tag.INSIGHT, envelope_key(scope), encode(self._queue.judged(earned, at_ms, policy.score(scope))))]
        self._answers.on_judged(scope, earned.query, policy)
        return out if self._behind(watermark_ms, wall_ms, policy) else out + self._withdraw(at_ms, policy)

    def _on_pattern(self, found: SessionPattern, watermark_ms: int, wall_ms: int, policy: PolicyBook) -> list[bytes]:
        self._patterns.on_pattern(found)
        self._share()
        self._arm(watermark_ms, found.at_ms)
        out = [seal(Tag.INSIGHT, envelope_key(found.scope), self._patterns.insight(found))]
        if self._behind(watermark_ms, wall_ms, policy):
            return out
        at_ms = max(found.at_ms, self._ticked_ms)
        ready = self._fleet.ready(at_ms)
        draft = self._patterns.draft(found, at_ms, ready, policy)
        if draft is None:
            return out
        allowance = self._prefixes.allowance(found.scope, ready, policy)
        return out + self._fast(draft, at_ms, priority_of_pattern(found).command, allowance, policy)

    def _on_prompts(self, use: PromptUse, watermark_ms: int, policy: PolicyBook) -> list[bytes]:
        self._prompts.on_use(use, policy)
        self._share()
        self._arm(watermark_ms, use.at_ms)
        return []

    def _share(self) -> None:
        """Tells who spends although nothing of theirs may be hot."""
        self._prefixes.share_with(self._announced.scopes | self._patterns.scopes | self._prompts.scopes)
        self._embeddings.share_with(self._announced.scopes)

    # What it does

    def _withdraw(self, at_ms: int, policy: PolicyBook) -> list[bytes]:
        """Takes out of the cache what has lost its place there."""
        out: list[bytes] = []
        for draft in self._answers.withdrawals(at_ms, policy) if self._answers.owed else ():
            out += self._fast(draft, at_ms, WITHDRAWAL_PRIORITY, NO_ALLOWANCE, policy)
            self._answers.issued(draft)
        return out

    def _plan_adapters(self, at_ms: int, ready: Ready, policy: PolicyBook) -> list[bytes]:
        if not self._adapters:
            return []
        out = self._adapters.plan(at_ms, ready, policy)
        self._issued += sum(tag_of(envelope) == Tag.COMMAND for envelope in out)
        return out

    def _plan_prompts(self, at_ms: int, ready: Ready, policy: PolicyBook) -> list[bytes]:
        out = []
        for rank, draft in enumerate(drafts := self._prompts.drafts(at_ms, ready, policy)):
            if self._issuer.pay(draft, at_ms, self._prefixes.allowance(draft.scope, ready, policy)):
                self._issued += 1
                self._prefixes.touched(draft.scope)
                out.append(self._issuer.command(draft, at_ms, "tick", priority_of(rank, len(drafts)), policy))
        return out

    def _prepare(self, at_ms: int, policy: PolicyBook) -> list[bytes]:
        """What announced changes ask for now."""
        if not self._announced:
            return []
        ready = self._fleet.ready(at_ms)
        out: list[bytes] = []
        for draft in self._announced.drafts(at_ms, ready, policy)[: self._config.max_commands]:
            scope = draft.scope
            allowance = (
                self._embeddings.allowance(scope, policy)
                if self._redis
                else self._prefixes.allowance(scope, ready, policy)
            )
            out += self._fast(draft, at_ms, ANNOUNCED_PRIORITY, allowance, policy)
        return out

    def _fast(self, draft: Draft, at_ms: int, priority: int, allowance: Allowance, policy: PolicyBook) -> list[bytes]:
        if not self._issuer.pay(draft, at_ms, allowance):
            return []
        self._issued += 1
        self._prefixes.touched(draft.scope)
        self._write()
        return [self._issuer.command(draft, at_ms, "fast", priority, policy)]

    def _judge(self, at_ms: int, ready_replicas: int, policy: PolicyBook) -> list[bytes]:
        ended = (at_ms - self._config.scaled_settle_ms) // self._window.minute_ms - 1
        out: list[bytes] = []
        first = self._judged + 1 if self._judged >= 0 else ended
        for minute in range(max(first, ended - MINUTES_KEPT + 1), ended + 1):
            out += self._crowds.judge(minute, ready_replicas, self._config.reference_replicas, policy)
        if ended > self._judged:
            self._judged = ended
            self._window.forget(ended - MINUTES_KEPT + 1)
        return out

    def _plan_prefixes(self, at_ms: int, wall_ms: int, behind: bool, report: bool, policy: PolicyBook) -> list[bytes]:
        ready = self._fleet.ready(at_ms)
        offers = self._prefixes.review(at_ms, ready, policy, self._announced.ended)
        out: list[bytes] = []
        standing = self._prefixes.standing() if report else None
        if not behind:
            choice = choose(
                offers,
                at_ms,
                self._issuer,
                lambda offer: self._prefixes.draft(offer, at_ms, ready, policy),
                lambda scope: self._prefixes.allowance(scope, ready, policy),
                self._config.max_commands,
            )
            out = self._tick_commands(choice, at_ms, policy)
            for scope, payable_ms in choice.waiting.items():
                self._prefixes.wait(scope, payable_ms)
        if standing is not None:
            evidence = {
                "replicas_ready": float(len(ready.names)),
                "scopes": float(standing.scopes),
                "scopes_frozen": float(standing.frozen),
                "offers": float(standing.offers),
            }
            frozen = 0 < standing.scopes == standing.frozen
            out.append(self._report(at_ms, wall_ms, behind, frozen, standing.candidates, standing.suppressed, evidence))
        return out

    def _plan_embeddings(self, at_ms: int, wall_ms: int, behind: bool, report: bool, policy: PolicyBook) -> list[bytes]:
        if report:
            self._rewards.expire(at_ms, self._config.scaled(self._config.reward_life_ms))
            self._answers.expire(at_ms)
            self._answers.replaced(self._announced.replaced(at_ms))
        out = [] if behind else self._withdraw(at_ms, policy)
        broke: set[str] = set()
        for scope, query in self._embeddings.owing(at_ms) if not behind else []:
            if scope in broke:  # each costs the same: what could not be paid once is not drafted again in this tick
                continue
            draft = self._embeddings.fast(scope, query, at_ms, policy)
            if draft is None:
                self._embeddings.settled(scope, query)
                continue
            allowance = self._embeddings.allowance(scope, policy)
            paid = self._fast(draft, at_ms, FAST_EMBEDDING_PRIORITY, allowance, policy)
            if paid:
                self._embeddings.settled(scope, query)
            else:
                broke.add(scope)
            out += paid
        # The queue changes with the panes; what expires in between can wait for the next one.
        if report:
            focus = self._crowds.focus(at_ms)
            offers, looked, suppressed = self._embeddings.review(at_ms, policy, focus)
            offers += self._clusters.review(at_ms, policy, offers)
            answers, judged, lasting = self._answers.review(at_ms, policy)
            offers, looked, suppressed = offers + answers, looked + judged, suppressed + lasting
            if not behind:
                choice = choose(
                    offers,
                    at_ms,
                    self._issuer,
                    lambda offer: (
                        self._answers.draft(offer, at_ms, policy)
                        or self._clusters.draft(offer, at_ms, policy)
                        or self._embeddings.draft(offer, at_ms, policy, focus)
                    ),
                    lambda scope: self._embeddings.allowance(scope, policy),
                    self._config.max_commands,
                )
                out += self._tick_commands(choice, at_ms, policy)
                for draft in choice.drafts:
                    self._answers.issued(draft)
            evidence = {
                "queries_known": float(self._embeddings.known),
                "queries_judged": float(len(self._rewards)),
                "answers_known": float(len(self._answers)),
                "owed": float(self._embeddings.owed),
                "offers": float(len(offers)),
            }
            out.append(self._report(at_ms, wall_ms, behind, False, looked, suppressed, evidence))
        return out

    def _tick_commands(self, choice: Choice, at_ms: int, policy: PolicyBook) -> list[bytes]:
        self._issued += len(choice.drafts)
        among = len(choice.drafts)
        return [
            self._issuer.command(draft, at_ms, "tick", priority_of(rank, among), policy)
            for rank, draft in enumerate(choice.drafts)
        ]

    def _behind(self, event_ms: int, wall_ms: int, policy: PolicyBook) -> bool:
        """Whether event time lags by more than half of a command's life."""
        plan = policy.plan(EVERY_SCOPE)
        life_ms = self._config.life_ms(plan.embedding_life_ms if self._redis else plan.prefix_life_ms)
        return wall_ms - event_ms > life_ms / 2

    def _report(
        self,
        at_ms: int,
        wall_ms: int,
        behind: bool,
        frozen: bool,
        candidates: int,
        suppressed: int,
        evidence: dict[str, float],
    ) -> bytes:
        state = PlannerState(
            pool=self._pool,
            at_ms=at_ms,
            state="catching_up" if behind else "frozen" if frozen else "planning",
            lag_ms=max(0, wall_ms - at_ms),
            candidates=candidates,
            issued=self._issued,
            suppressed=suppressed,
            evidence={**evidence, "targets": float(len(self._memory))},
        )
        self._reported_ms = at_ms
        self._issued = 0
        return seal(Tag.INSIGHT, envelope_key(self._pool), encode(state))

    # Timer and state

    def _arm(self, watermark_ms: int, event_ms: int) -> None:
        if self._next_timer_ms is None:
            tick_ms = self._config.scaled_tick_ms
            self._next_timer_ms = ((watermark_ms or event_ms) // tick_ms + 1) * tick_ms
            self._write()

    def _write(self) -> None:
        record = PlannerRecord(1, self._next_timer_ms, self._judged, self._ticked_ms, self._reported_ms, self._issued)
        self._store.put("s", pack(record))

    def _restore(self) -> None:
        readers = {
            "a": self._answers.restore,
            "c": self._clusters.restore,
            "f": self._crowds.restore,
            "h": self._patterns.restore,
            "i": self._window.restore,
            "k": self._embeddings.restore,
            "n": self._announced.restore,
            "p": self._fleet.restore,
            "q": self._queue.restore,
            "r": self._rewards.restore,
            "t": self._memory.restore,
            "u": self._queue.restore_queue,
            "x": self._prefixes.restore,
            "y": self._budget.restore,
        }
        for key, blob in self._store.items():
            if key == "s":
                record = unpack(blob, PlannerRecord)
                self._next_timer_ms, self._judged = record.next_timer_ms, record.judged
                self._ticked_ms, self._reported_ms = record.ticked_ms, record.reported_ms
                self._issued = record.issued
            elif key[0] == "d":
                self._adapters.restore(key[1:], blob)
            elif key[0] == "m":
                self._prompts.restore(key[1:], blob)
            else:
                readers[key[0]](blob)
        self._share()
