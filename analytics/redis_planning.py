"""The plan of a Redis pool: the queue of hot queries, what they earned, answers, embeddings, clusters, and values.

It hears the queries of all pools (B16). Its sections of the store: a answers, c clusters, k known queries, o answers
on their way out, q demand, r rewards, u queues.
"""

from __future__ import annotations

from collections.abc import Iterable

from analytics.answer_planning import RESPONSE, AnswerPlanner
from analytics.choosing import LeftOut, choose
from analytics.cluster_planning import ClusterPlanner
from analytics.commands import NO_ALLOWANCE, Allowance, Offer
from analytics.demand_queue import DemandQueue
from analytics.embedding_planning import EmbeddingPlanner
from analytics.envelopes import Answered, Embedded, Partial, Rewarded, Tag, body_of, open_as, seal, tag_of
from analytics.plan_config import PlanConfig
from analytics.planning import Planner
from analytics.policy import PolicyBook
from analytics.pools import envelope_key
from analytics.records import Section
from analytics.replicas import Ready
from analytics.reward_book import RewardBook
from analytics.stores import MapStore
from analytics.tick import Tick
from analytics.withdrawals import FIRST_PAUSE_MS, Withdrawals
from schemas import EVERY_SCOPE, WarmupOutcome, encode

SIGHT_PRIORITY = 700
"""A query that was just seen again goes before those that are merely likely."""
WITHDRAWAL_PRIORITY = 999
"""For what costs nothing."""


class RedisPlanner(Planner):
    """The planner of a Redis pool."""

    def __init__(self, config: PlanConfig, pool: str, store: MapStore) -> None:
        super().__init__(config, pool, store)
        self._rewards = RewardBook(config.max_judged, Section(store, "r"), self._alike)
        self._queue = DemandQueue(Section(store, "q"), Section(store, "u"), self._rewards)
        self._embeddings = EmbeddingPlanner(config, self._memory, self._queue, Section(store, "k"))
        self._withdrawals = Withdrawals(config.scaled(FIRST_PAUSE_MS), Section(store, "o"))
        self._answers = AnswerPlanner(
            config, self._memory, self._queue, self._rewards, self._embeddings, self._withdrawals, Section(store, "a")
        )
        self._clusters = ClusterPlanner(config, self._embeddings, Section(store, "c"))
        self._restore(
            {
                "a": self._answers.restore,
                "c": self._clusters.restore,
                "k": self._embeddings.restore,
                "r": self._rewards.restore,
                "u": self._queue.restore_queue,
            },
            {"o": self._withdrawals.restore, "q": self._queue.restore},
        )
        self._share()

    @property
    def _holds(self) -> bool:
        return any((self._embeddings.known, self._clusters, len(self._rewards), len(self._answers)))

    def _busy(self, _at_ms: int) -> bool:
        return any((self._queue, self._embeddings.owed, self._clusters, len(self._rewards), len(self._answers)))

    def _forget(self, at_ms: int) -> None:
        self._clusters.expire(at_ms)
        self._embeddings.shrink()

    def _share(self) -> None:
        self._embeddings.share_with(self._announced.scopes)

    def _allowance(self, scope: str, _ready: Ready, policy: PolicyBook) -> Allowance:
        return self._embeddings.allowance(scope, policy)

    def _stay_ms(self, scope: str, policy: PolicyBook) -> int:
        return policy.plan(scope).embedding_resident_ms

    def _life_ms(self, policy: PolicyBook) -> int:
        return policy.plan(EVERY_SCOPE).embedding_life_ms

    def _alike(self, scope: str, query: str) -> tuple[str, ...]:
        return self._clusters.alike(scope, query)

    # What it hears

    def _on_own(self, envelope: bytes, watermark_ms: int, wall_ms: int, policy: PolicyBook) -> list[bytes]:
        tag = tag_of(envelope)
        if tag == Tag.EMBEDDED:
            return self._on_embedded(open_as(envelope, Embedded), watermark_ms, wall_ms, policy)
        if tag == Tag.REWARDED:
            return self._on_rewarded(open_as(envelope, Rewarded), watermark_ms, wall_ms, policy)
        if tag == Tag.ANSWER:
            answered = open_as(envelope, Answered)
            self._answers.on_answer(answered)
            self._clock.arm(watermark_ms, answered.at_ms)
        elif tag == Tag.CLUSTERED:
            self._clock.arm(watermark_ms, self._clusters.on_clustered(body_of(envelope)))
        return []

    def _on_counts(self, partial: Partial, before: Partial, policy: PolicyBook) -> None:
        """Queries that were asked for since the last revision are demand in the middle of their pane."""
        if partial.dimension != "query":
            return
        counted = {key.key: key.count for key in before.top}
        middle_ms = partial.pane_start_ms + self._config.scaled_pane_ms // 2
        mean_life_ms = self._config.scaled(policy.score(partial.scope).decay_ms)
        arrivals = {key.key: more for key in partial.top if (more := key.count - counted.get(key.key, 0)) > 0}
        if arrivals:
            self._queue.add(partial.scope, arrivals, middle_ms, mean_life_ms)

    def _on_outcome(self, outcome: WarmupOutcome, policy: PolicyBook) -> None:
        if outcome.target_key.startswith(RESPONSE):
            self._settle(outcome, policy.plan(outcome.scope).response_resident_ms)
            self._answers.on_outcome(outcome)
        else:
            super()._on_outcome(outcome, policy)

    def _on_embedded(self, embedded: Embedded, watermark_ms: int, wall_ms: int, policy: PolicyBook) -> list[bytes]:
        self._embeddings.on_embedded(embedded)
        self._clock.arm(watermark_ms, embedded.at_ms)
        if self._behind(watermark_ms, wall_ms, policy):
            return []
        return self._pay_owed(embedded.scope, embedded.query, self._clock.not_before_tick(embedded.at_ms), policy) or []

    def _on_rewarded(self, rewarded: Rewarded, watermark_ms: int, wall_ms: int, policy: PolicyBook) -> list[bytes]:
        earned = self._rewards.take(rewarded)
        scope, at_ms = earned.scope, self._clock.not_before_tick(earned.at_ms)
        self._clock.arm(watermark_ms, earned.at_ms)
        score = self._queue.judged(earned, at_ms, policy.score(scope))
        out = [seal(Tag.INSIGHT, envelope_key(scope), encode(score))]
        self._answers.on_judged(scope, earned.query, policy)
        return out if self._behind(watermark_ms, wall_ms, policy) else out + self._withdraw(at_ms, policy)

    # What it does

    def _plan(self, tick: Tick) -> list[bytes]:
        at_ms = tick.at_ms
        if tick.report:
            self._rewards.expire(at_ms, self._config.scaled(self._config.reward_life_ms))
            self._answers.expire(at_ms)
            self._answers.replaced(self._announced.replaced(at_ms))
        out = [] if tick.behind else self._withdraw(at_ms, tick.policy) + self._pay_all_owed(tick)
        # The queue changes with the panes; what expires in between can wait for the next one.
        return out + self._plan_offers(tick) if tick.report else out

    def _withdraw(self, at_ms: int, policy: PolicyBook) -> list[bytes]:
        """Takes out of the cache what has lost its place there."""
        out: list[bytes] = []
        for draft in self._answers.withdrawals(at_ms, policy):
            out += self._fast(draft, at_ms, WITHDRAWAL_PRIORITY, NO_ALLOWANCE, policy)
            self._answers.issued(draft)
        return out

    def _pay_owed(self, scope: str, query: str, at_ms: int, policy: PolicyBook) -> list[bytes] | None:
        """The fast command that a query is owed, if it is still wanted; None where it cannot be paid now."""
        draft = self._embeddings.fast(scope, query, at_ms, policy)
        out: list[bytes] = []
        if draft is not None:
            out = self._fast(draft, at_ms, SIGHT_PRIORITY, self._embeddings.allowance(scope, policy), policy)
            if not out:
                return None
        self._embeddings.settled(scope, query)
        return out

    def _pay_all_owed(self, tick: Tick) -> list[bytes]:
        out: list[bytes] = []
        broke: set[str] = set()
        for scope, query in self._embeddings.owing(tick.at_ms):
            if scope in broke:  # each costs the same: what could not be paid once is not drafted again in this tick
                continue
            paid = self._pay_owed(scope, query, tick.at_ms, tick.policy)
            if paid is None:
                broke.add(scope)
            else:
                out += paid
        return out

    def _plan_offers(self, tick: Tick) -> list[bytes]:
        at_ms, policy = tick.at_ms, tick.policy
        focus = self._crowds.focus(at_ms)
        queries, looked, suppressed = self._embeddings.review(at_ms, policy, focus)
        queries += self._clusters.review(at_ms, policy, queries)
        answers, judged, lasting = self._answers.review(at_ms, policy)
        offers = _by_worth(queries, self._config.embed_saved_ms) + _by_worth(answers, self._config.response_saved_ms)
        looked, suppressed = looked + judged, suppressed + lasting
        out: list[bytes] = []
        own: dict[str, float] = {}
        left_out: list[LeftOut] = []
        if not tick.behind:
            mine, draft_of, own = self._ranked(
                sorted(offers),
                lambda offer: (
                    self._answers.draft(offer, at_ms, policy)
                    or self._clusters.draft(offer, at_ms, policy)
                    or self._embeddings.draft(offer, at_ms, policy, focus)
                ),
                at_ms,
            )
            choice = choose(
                mine,
                at_ms,
                self._issuer,
                draft_of,
                lambda scope: self._embeddings.allowance(scope, policy),
                self._config.max_commands,
            )
            out += self._chosen(choice, tick)
            left_out = choice.left_out
            for paid in choice.paid:
                self._answers.issued(paid.draft)
        evidence = {
            "queries_known": float(self._embeddings.known),
            "queries_judged": float(len(self._rewards)),
            "answers_known": float(len(self._answers)),
            "owed": float(self._embeddings.owed),
            "offers": float(len(offers)),
            **self._withdrawals.reported(),
            **own,
        }
        out.append(self._report(tick, False, looked, suppressed, evidence, left_out))
        return out


def _by_worth(offers: Iterable[Offer], saved_ms: float) -> list[Offer]:
    """Offers of one kind as they rank among all: by their use, as their kind judges it, times what a hit saves."""
    return [offer._replace(minus_density=offer.minus_density * saved_ms) for offer in offers]
