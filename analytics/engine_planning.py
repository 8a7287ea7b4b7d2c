"""The plan of a group of GPU replicas: hot prefixes, patterns of sessions, managed prompts, and adapters.

Its sections of the store: d adapters, g groups of requests, h patterns, m managed prompts, r what renewals used, w how
long replicas keep things, x prefixes.
"""

from __future__ import annotations

from analytics.adapter_planning import AdapterPlanner
from analytics.budget import Budget
from analytics.choosing import LeftOut, choose
from analytics.commands import Allowance, Draft, priority_by_worth, priority_of
from analytics.crowds import FAMILY
from analytics.envelopes import Fading, Partial, Tag, body_of, open_as, seal, tag_of
from analytics.pattern_planning import PatternPlanner
from analytics.plan_config import PlanConfig
from analytics.planning import Planner
from analytics.policy import PolicyBook
from analytics.policy_sections import PlanPolicy
from analytics.pools import envelope_key
from analytics.prefix_look import Ended
from analytics.prefix_planning import PrefixPlanner, Renewable, Solvent
from analytics.prefix_state import state_of
from analytics.prompt_planning import PromptPlanner
from analytics.prompt_usage import PromptUse
from analytics.records import Section
from analytics.replicas import Ready, incarnation_mark
from analytics.request_features import SessionFeatures
from analytics.stay_time import StayTime
from analytics.stores import MapStore
from analytics.tick import Tick
from analytics.turns import SessionPattern
from schemas import EVERY_SCOPE, Announcement, Residency, WarmupOutcome

LOST_PRIORITY = 999
"""A hot prefix that was lost goes before everything that is merely likely."""


class EnginePlanner(Planner):
    """The planner of a group of GPU replicas."""

    def __init__(self, config: PlanConfig, pool: str, store: MapStore) -> None:
        super().__init__(config, pool, store)
        self._renews = config.renew_rule == "tuned"
        first_ms = config.scaled(PlanPolicy().prefix_resident_ms)
        self._stay = StayTime(first_ms, Section(store, "w"), config.absent_rule)
        self._prefixes = PrefixPlanner(config, self._memory, Section(store, "x"), self._stay)
        self._renewing = Budget(Section(store, "r"))
        self._patterns = PatternPlanner(config, pool, self._memory, self._prefixes, self._stay, store)
        self._prompts = PromptPlanner(config, pool, self._memory, self._prefixes, store)
        self._adapters = AdapterPlanner(config, pool, self._memory, self._fleet, self._crowds, store)
        self._restore(
            {
                "h": self._patterns.restore,
                "g": self._patterns.restore_group,
                "r": self._renewing.restore,
                "w": self._stay.restore,
                "x": self._prefixes.restore,
            },
            {"d": self._adapters.restore, "m": self._prompts.restore},
        )
        self._share()

    @property
    def _holds(self) -> bool:
        return bool(self._adapters or self._patterns or self._prompts or self._renewing)

    def _busy(self, at_ms: int) -> bool:
        return bool(self._prefixes or self._patterns or self._prompts.busy) or self._adapters.busy(at_ms)

    def _forget(self, at_ms: int) -> None:
        self._prefixes.expire(at_ms)
        self._adapters.forget(at_ms)
        self._patterns.forget(at_ms)
        self._prompts.forget(at_ms)

    def _share(self) -> None:
        self._prefixes.share_with(self._announced.scopes | self._patterns.scopes | self._prompts.scopes)

    def _allowance(self, scope: str, ready: Ready, policy: PolicyBook) -> Allowance:
        return self._prefixes.allowance(scope, ready, policy)

    def _stay_ms(self, scope: str, policy: PolicyBook) -> int:
        return policy.plan(scope).prefix_resident_ms

    def _life_ms(self, policy: PolicyBook) -> int:
        return policy.plan(EVERY_SCOPE).prefix_life_ms

    @property
    def _ended(self) -> Ended | None:
        """What announced changes have ended, where there are any."""
        return self._announced.ended_before if self._announced else None

    # What it hears

    def _on_own(self, envelope: bytes, watermark_ms: int, wall_ms: int, policy: PolicyBook) -> list[bytes]:
        tag = tag_of(envelope)
        if tag == Tag.CANDIDATES:
            self._clock.arm(watermark_ms, self._prefixes.on_candidates(body_of(envelope)))
        elif tag == Tag.FADING:
            told = open_as(envelope, Fading)
            return [seal(Tag.INSIGHT, envelope_key(told.scope), state_of(told))]
        elif tag == Tag.PROMPTS:
            self._on_prompts(open_as(envelope, PromptUse), watermark_ms, policy)
        elif tag == Tag.PATTERN:
            return self._on_pattern(open_as(envelope, SessionPattern), watermark_ms, wall_ms, policy)
        elif tag == Tag.FEATURES:
            features = open_as(envelope, SessionFeatures)
            self._patterns.on_features(features)
            self._clock.arm(watermark_ms, features.at_ms)
        return []

    def _on_partial(self, partial: Partial, watermark_ms: int, policy: PolicyBook) -> None:
        """Totals of queries are the Redis pool's business where there is one."""
        if not (partial.dimension == "query" and self._config.redis_pool):
            super()._on_partial(partial, watermark_ms, policy)

    def _on_counts(self, partial: Partial, before: Partial, policy: PolicyBook) -> None:
        self._adapters.on_partial(partial, before, policy)

    def _on_outcome(self, outcome: WarmupOutcome, policy: PolicyBook) -> None:
        if not self._adapters.on_outcome(outcome, self._fleet.mark(outcome.replica), policy):
            at_ms = outcome.finished_at_ms
            if self._renews:
                self._fleet.on_warmed(outcome)
                self._owe(outcome, policy)
            if self._fleet.settled(outcome.replica, at_ms, self._stay.learns_after_ms):
                self._prefixes.learn(outcome, len(self._fleet.ready(at_ms).names))
            super()._on_outcome(outcome, policy)

    def _owe(self, outcome: WarmupOutcome, policy: PolicyBook) -> None:
        """What a renewal computed is paid for afterwards, most of all where the prefix was gone after all.

        It is paid twice: warm-ups of what is absent get what is left of the budget, and a bucket of their own holds
        renewals back, so that what one long prefix owes does not.
        """
        scope, at_ms = outcome.scope, outcome.finished_at_ms
        target = self._memory.get(scope, outcome.target_key)
        if target is not None and outcome.command_id == target.command_id and outcome.replica in target.waiting:
            allowance = self._allowance(scope, self._fleet.ready(at_ms), policy)
            more = outcome.tokens_warmed - target.charged
            for budget in (self._budget, self._renewing) if target.charged == 0 else (self._budget,):
                budget.owe(scope, more, allowance.rate_per_s, allowance.burst, at_ms)

    def _on_residency(self, message: Residency, watermark_ms: int, wall_ms: int, policy: PolicyBook) -> list[bytes]:
        """What a replica has just lost is warmed there again at once, if it is hot."""
        scope, replica = message.scope, message.replica
        lost = self._observe(message, self._stay_ms(scope, policy), policy)
        known_mark = self._fleet.mark(replica)
        if not lost or known_mark not in (0, incarnation_mark(message.incarnation)):
            return []
        if self._behind(watermark_ms, wall_ms, policy):
            return []
        at_ms = self._clock.not_before_tick(message.observed_at_ms)
        ready = self._fleet.ready(at_ms)
        draft = self._prefixes.drafts.rewarm(scope, message.target_key, replica, at_ms, ready, policy, self._ended)
        if draft is None:
            return []
        return self._fast(draft, at_ms, LOST_PRIORITY, self._allowance(scope, ready, policy), policy)

    def _on_announcement(
        self, message: Announcement, watermark_ms: int, wall_ms: int, policy: PolicyBook
    ) -> list[bytes]:
        self._adapters.on_announcement(message)
        self._prompts.on_announcement(message)
        return super()._on_announcement(message, watermark_ms, wall_ms, policy)

    def _on_pattern(self, found: SessionPattern, watermark_ms: int, wall_ms: int, policy: PolicyBook) -> list[bytes]:
        self._patterns.on_pattern(found)
        self._share()
        self._clock.arm(watermark_ms, found.at_ms)
        out = [seal(Tag.INSIGHT, envelope_key(found.scope), self._patterns.insight(found))]
        if self._behind(watermark_ms, wall_ms, policy):
            return out
        at_ms = self._clock.not_before_tick(found.at_ms)
        ready = self._fleet.ready(at_ms)
        draft = self._patterns.draft(found, at_ms, ready, policy)
        if draft is None:
            return out
        allowance = self._allowance(found.scope, ready, policy)
        return out + self._fast(draft, at_ms, self._patterns.priority(found, draft, policy), allowance, policy)

    def _on_prompts(self, use: PromptUse, watermark_ms: int, policy: PolicyBook) -> None:
        self._prompts.on_use(use, policy)
        self._share()
        self._clock.arm(watermark_ms, use.at_ms)

    # What it does

    def _plan(self, tick: Tick) -> list[bytes]:
        self._adapters.pass_panes(tick.at_ms, tick.policy)
        before = [] if tick.behind else self._plan_adapters(tick) + self._plan_prompts(tick)
        groups = self._patterns.group_insights(tick.at_ms) if tick.report else []
        return before + self._plan_prefixes(tick) + groups

    def _priority(self, draft: Draft, rank: int, among: int) -> int:
        """By worth, so that what ticks and patterns ask for stands in one line; an own policy's rank is its own."""
        return priority_by_worth(draft) if self._config.own is None else super()._priority(draft, rank, among)

    def _plan_adapters(self, tick: Tick) -> list[bytes]:
        if not self._adapters:
            return []
        out = self._adapters.plan(tick.at_ms, tick.ready, tick.policy)
        self._clock.issued += sum(tag_of(envelope) == Tag.COMMAND for envelope in out)
        return out

    def _plan_prompts(self, tick: Tick) -> list[bytes]:
        at_ms, policy = tick.at_ms, tick.policy
        out = []
        for scope, drafts in self._prompts.draws(at_ms, tick.ready, policy, self._solvent(tick)).items():
            allowance = self._allowance(scope, tick.ready, policy)
            paid = [self._issuer.pay(draft, at_ms, allowance) for draft in drafts]
            if None not in paid:
                self._prompts.drawn(scope, at_ms, policy)
            for rank, each in enumerate(paid):
                if each is not None:
                    self._clock.issued += 1
                    out.append(self._issuer.command(each, at_ms, "tick", priority_of(rank, len(drafts)), policy))
        return out

    def _solvent(self, tick: Tick) -> Solvent:
        """When a scope can pay anything at all, as things stand at a tick."""
        return lambda scope, least: self._issuer.solvent_ms(
            scope, self._allowance(scope, tick.ready, tick.policy), tick.at_ms, least
        )

    def _renewable(self, tick: Tick) -> Renewable:
        """Whether a scope may renew what is resident, as things stand at a tick."""

        def may(scope: str) -> bool:
            allowance = self._allowance(scope, tick.ready, tick.policy)
            return self._renewing.held(scope, allowance.rate_per_s, allowance.burst, tick.at_ms) > 0

        return may

    def _plan_prefixes(self, tick: Tick) -> list[bytes]:
        at_ms, ready, policy = tick.at_ms, tick.ready, tick.policy
        self._renewing.forget(at_ms, lambda scope: self._allowance(scope, ready, policy))
        if ready.names:
            margin_per_s = self._fleet.margin_per_s(ready.names, at_ms) if self._renews else None
            self._prefixes.expect(self._fleet.stay_ms(ready.names, at_ms), margin_per_s)
        crowds = self._crowds.focus(at_ms, FAMILY)
        self._prefixes.raise_families({scope: (keys, policy.focus(scope).boost) for scope, keys in crowds.items()})
        renewable = self._renewable(tick) if self._renews else None
        ranking = self._prefixes.review(at_ms, ready, policy, self._solvent(tick), self._ended, renewable)
        out: list[bytes] = []
        own: dict[str, float] = {}
        left_out: list[LeftOut] = []
        if not tick.behind:
            mine, draft_of, own = self._ranked(
                ranking, lambda offer: self._prefixes.drafts.of(offer, at_ms, ready, policy), at_ms
            )
            choice = choose(
                mine,
                at_ms,
                self._issuer,
                draft_of,
                lambda scope: self._allowance(scope, ready, policy),
                self._config.max_commands,
                ranking.closed,
            )
            out = self._chosen(choice, tick)
            self._prefixes.chosen(ranking, choice.waiting)
            left_out = choice.left_out
        if tick.report or left_out:
            standing = self._prefixes.standing(at_ms, ready, policy)
            evidence = {
                "replicas_ready": float(len(ready.names)),
                "scopes": float(standing.scopes),
                "scopes_frozen": float(standing.frozen),
                **self._adapters.evidence,
                **own,
            }
            frozen = 0 < standing.scopes == standing.frozen
            out.append(self._report(tick, frozen, standing.candidates, standing.suppressed, evidence, left_out))
        return out
