"""The prefix half of a pool's plan: which of the hot prefixes to warm on which replicas, now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgspec

from analytics.commands import NEVER_MS, NO_ALLOWANCE, Allowance
from analytics.envelopes import Candidates, Root
from analytics.hot_prefixes import HotPrefixes, Raised
from analytics.memory import TargetMemory
from analytics.plan_config import PlanConfig
from analytics.policy import PlanPolicy, PolicyBook
from analytics.prefix_drafts import PrefixDrafts
from analytics.prefix_look import Ended, PoolNow, Terms, now_of, prefill_per_s, terms_of
from analytics.prefix_ranking import Look, Ranking, suppressed
from analytics.records import Section, path
from analytics.replicas import Ready
from analytics.shares import Shares
from analytics.stay_time import StayTime
from schemas.warmup_outcome import WarmupOutcome

Renewable = Callable[[str], bool]
"""Whether a scope may renew what is resident."""
Solvent = Callable[[str, float], int]
"""When a scope can pay anything at all, if nothing costs less than an amount."""
NO_ROOTS: frozenset[Root] = frozenset()


@dataclass(frozen=True)
class Standing:
    """Where all scopes stand.

    Attributes:
        candidates: hot prefixes.
        suppressed: those that are live, resident or were commanded too lately.
        frozen: scopes that may not act.
    """

    candidates: int
    suppressed: int
    scopes: int
    frozen: int


class PrefixPlanner:
    """Hot prefixes of every scope in one pool.

    A scope whose candidates can do nothing before some time is not looked at until then, unless something changes;
    a look in between would find the same. That is only a saving, and no state.

    Attributes:
        drafts: of the offers that a `review` finds, and of what a replica lost.
    """

    def __init__(self, config: PlanConfig, memory: TargetMemory, store: Section, stay: StayTime) -> None:
        self._config = config
        self._memory = memory
        self._store = store
        self._stay = stay
        self._hot = HotPrefixes(memory)
        self.drafts = PrefixDrafts(config, memory, self._hot, stay)
        self._wake_ms: dict[str, int] = {}
        self._shares = Shares()
        self._allowances: dict[str, Allowance] = {}
        self._announced_version = 0
        self._seen: tuple[object, ...] = ()
        self._noted: tuple[object, ...] = ()
        self._listed: tuple[object, ...] = ()
        self._announced: frozenset[str] = frozenset()
        memory.watch(self._touched)

    def __bool__(self) -> bool:
        return bool(self._hot)

    def share_with(self, scopes: frozenset[str]) -> None:
        """Scopes that spend in this pool although nothing of theirs may be hot: they have announced something."""
        if scopes != self._announced:
            self._announced = scopes
            self._announced_version += 1

    def on_candidates(self, body: bytes) -> int:
        """Replaces a scope's hot prefixes; returns the event time of the message."""
        found = msgspec.msgpack.decode(body, type=Candidates)
        if found.at_ms < self._hot.at_ms(found.scope):
            return found.at_ms
        if not found.candidates:
            self._drop(found.scope)
            return found.at_ms
        self._hot.take(found)
        self._wake_ms.pop(found.scope, None)
        self._store.put(path(found.scope), body)
        return found.at_ms

    def learn(self, outcome: WarmupOutcome, replicas: int) -> None:
        """What a warm-up found on a replica of which nothing was known tells how long replicas keep things.

        To be told before the outcome is remembered.

        Args:
            replicas: that share the requests.
        """
        hot = self._hot.get(outcome.scope, outcome.target_key)
        if hot is None or outcome.action != "warm" or outcome.status not in ("applied", "resident"):
            return
        target = self._memory.get(outcome.scope, outcome.target_key)
        if target is not None and outcome.replica in target.stays:
            return
        absent = outcome.status == "applied"
        if self._stay.margin_per_s is not None and replicas == 1:
            changed = self._stay.learn_by_age(outcome.finished_at_ms - hot.candidate.last_ms, absent)
        else:
            changed = self._stay.learn(hot.candidate.rate_per_s / max(1, replicas), absent)
        if changed:
            self._changed()

    def expect(self, shadow_ms: float | None, margin_per_s: float | None = None) -> None:
        """What replicas' capacity and traffic say; None where they do not tell these.

        Args:
            shadow_ms: how long they should keep things.
            margin_per_s: at which rate that is asked for which they let go of next, if what is resident is renewed.
        """
        if not self._hot:
            return
        changed = self._stay.expect(shadow_ms)
        if self._stay.expect_margin(margin_per_s) or changed:
            self._changed()

    def expire(self, at_ms: int) -> None:
        """Drops the candidates that nobody has confirmed for too long."""
        life_ms = self._config.scaled(self._config.candidates_life_ms)
        for scope in self._hot.unconfirmed(at_ms - life_ms):
            self._drop(scope)

    def raise_families(self, raised: Mapping[str, Raised]) -> None:
        """Crowds have gathered on these families of prefixes, and on no others."""
        for scope in self._hot.raise_families(raised):
            self._wake_ms.pop(scope, None)

    def review(
        self,
        at_ms: int,
        ready: Ready,
        policy: PolicyBook,
        solvent_ms: Solvent,
        ended: Ended | None = None,
        renewable: Renewable | None = None,
    ) -> Ranking:
        """What is worth it now, of every scope where something can have changed; `chosen` says what came of it.

        Args:
            solvent_ms: when a scope can pay any of its prefixes, of which the shortest costs so much: it is not looked
                at before.
            ended: what of a scope's prefixes with some root a change has ended.
            renewable: whether what is resident may be renewed, even where nothing else can be paid.
        """
        self._refresh(ready, policy)
        looks: list[Look] = []
        terms: dict[int, Terms] = {}
        for scope, columns in self._hot.columns():
            if self._wake_ms.get(scope, 0) > at_ms:
                continue
            plan = policy.plan(scope)
            barred = policy.frozen(scope) or not plan.prefixes
            wake_ms = NEVER_MS if barred else solvent_ms(scope, float(columns.tokens.min()))
            renews = renewable is not None and self._stay.margin_per_s is not None and not barred and renewable(scope)
            if wake_ms > at_ms and not renews:
                self._wake_ms[scope] = wake_ms
                continue
            now = self._terms(plan, at_ms, terms)
            if renewable is not None:
                now = replace(now, warms=wake_ms <= at_ms, renews=renews)
            roots = self._hot.roots(scope) if ended else NO_ROOTS
            over = {root: before_ms for root in roots if ended and (before_ms := ended(scope, root, at_ms))}
            looks.append(Look(scope, columns, now, over, solvent_ms=wake_ms))
        return Ranking(looks, self._now(at_ms, ready, policy), self._memory)

    def chosen(self, ranking: Ranking, waiting: Mapping[str, int]) -> None:
        """What became of the offers of a `review`: who waits for what is not looked at until then.

        Args:
            waiting: scopes that cannot pay their best offer, and when they can. What was looked at before it may lapse
                earlier; what was not is worth less than what they save for.
        """
        for look in ranking.looks:
            if look.scope in waiting:
                self._wake_ms[look.scope] = min(look.lapse_ms, waiting[look.scope])
            elif ranking.exhausted and not look.offered:
                self._wake_ms[look.scope] = look.lapse_ms if look.terms.warms else min(look.lapse_ms, look.solvent_ms)

    def standing(self, at_ms: int, ready: Ready, policy: PolicyBook) -> Standing:
        """Where all scopes stand."""
        self._refresh(ready, policy)
        terms: dict[int, Terms] = {}
        looks = []
        candidates = frozen = 0
        for scope, columns in self._hot.columns():
            plan = policy.plan(scope)
            candidates += len(columns.keys)
            if policy.frozen(scope):
                frozen += 1
            elif plan.prefixes and ready.names:
                looks.append(Look(scope, columns, self._terms(plan, at_ms, terms)))
        barred = suppressed(looks, self._now(at_ms, ready, policy), self._memory)
        return Standing(candidates, barred, len(self._hot), frozen)

    def family_of(self, scope: str, root: Root, hashes: bytes) -> str:
        """Unit of a prefix that the tree has not named."""
        return self._hot.family_of(scope, root, hashes)

    def allowance(self, scope: str, ready: Ready, policy: PolicyBook) -> Allowance:
        """What a scope may spend on prefill: its share of a part of every ready replica's, a larger one of a cold's."""
        self._refresh(ready, policy)
        share = self._shares.of(scope, policy)
        if not share:
            return NO_ALLOWANCE
        if scope not in self._allowances:
            budget = policy.budget()
            steady = budget.prefill_share * len(ready.names)
            more = max(0.0, budget.cold_start_share - budget.prefill_share) * ready.cold
            # Twice the steady budget is what executors let through (`executor.quota_slack`).
            rate = (steady + min(more, steady)) * prefill_per_s(budget, self._config) * share
            self._allowances[scope] = Allowance(rate, rate * self._config.scaled(budget.burst_ms) / 1000, share)
        return self._allowances[scope]

    def restore(self, blob: bytes) -> None:
        """Takes back one scope's candidates."""
        self._hot.take(msgspec.msgpack.decode(blob, type=Candidates))

    def _now(self, at_ms: int, ready: Ready, policy: PolicyBook) -> PoolNow:
        return now_of(at_ms, ready, policy.budget(), self._config, self._stay.margin_per_s)

    def _terms(self, plan: PlanPolicy, at_ms: int, known: dict[int, Terms]) -> Terms:
        """What a scope's policy means at this tick; most scopes share one."""
        if id(plan) not in known:
            known[id(plan)] = terms_of(plan, at_ms, self._config, self._stay.ms)
        return known[id(plan)]

    def _changed(self) -> None:
        """Replicas keep things for another time than thought."""
        self._wake_ms.clear()
        if self._stay.margin_per_s is not None:
            self._hot.changed_all()

    def _touched(self, scope: str, key: str) -> None:
        """Something else is remembered of a target than before."""
        self._wake_ms.pop(scope, None)
        self._hot.changed(scope, key)

    def _refresh(self, ready: Ready, policy: PolicyBook) -> None:
        """Forgets what was derived from another policy, fleet or set of scopes."""
        noted = (policy, policy.revision, ready)
        if self._noted != noted:
            self._noted = noted
            self._hot.changed_all()
        if self._listed != ready.adapters:
            self._listed = ready.adapters
            for scope in self._hot.changed_adapters():
                self._wake_ms.pop(scope, None)
        seen = (*noted, self._hot.version, self._announced_version)
        if self._seen != seen:
            self._seen = seen
            self._wake_ms.clear()
            self._shares = Shares(self._hot.scopes | self._announced)
            self._allowances.clear()

    def _drop(self, scope: str) -> None:
        self._hot.drop(scope)
        self._wake_ms.pop(scope, None)
        self._store.remove(path(scope))
        if not self._hot:
            self._stay.forget()
