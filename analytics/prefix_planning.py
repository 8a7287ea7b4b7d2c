"""The prefix half of a pool's plan: which of the hot prefixes to warm on which replicas, now."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from analytics.budget import shares
from analytics.commands import NEVER_MS, Allowance, Draft
from analytics.envelopes import Candidate, Candidates, Root
from analytics.memory import NO_BUCKET, TargetMemory
from analytics.plan_config import PlanConfig
from analytics.policy import BudgetPolicy, PlanPolicy, PolicyBook
from analytics.prefix_nodes import HASH_BYTES
from analytics.records import Section, path
from analytics.replicas import Ready
from analytics.worth import Worth, p_absent, p_absent_prior
from schemas.canonical import bucket, prefix_key
from schemas.warmup_command import Qos

TRIGGER_HOT = "hot_prefix"
TRIGGER_LOST = "lost_prefix"


@dataclass(frozen=True)
class _Hot:
    """A candidate, and what every look at it needs."""

    candidate: Candidate
    root: Root
    key: str
    tokens: int


@dataclass
class Review:
    """What a pass over the candidates found.

    Attributes:
        drafts: worth a warm-up now.
        candidates, suppressed: looked at, and of those live or resident already.
        frozen: scopes that may not act.
    """

    drafts: list[Draft]
    candidates: int = 0
    suppressed: int = 0
    frozen: int = 0
    scopes: int = 0


class PrefixPlanner:
    """Hot prefixes of every scope in one pool.

    A scope whose candidates can do nothing before some time is not looked at until then, unless something changes;
    a look in between would find the same. That is only a saving, and no state.
    """

    def __init__(self, config: PlanConfig, memory: TargetMemory, store: Section) -> None:
        self._config = config
        self._memory = memory
        self._store = store
        self._hot: dict[str, dict[str, _Hot]] = {}
        self._at_ms: dict[str, int] = {}
        self._wake_ms: dict[str, int] = {}
        self._lapse_ms: dict[str, int] = {}
        self._shares: dict[str, float] = {}
        self._scopes_version = 0
        self._seen: tuple[object, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._hot)

    @property
    def candidates(self) -> int:
        """How many prefixes are hot over all scopes."""
        return sum(len(hot) for hot in self._hot.values())

    def on_candidates(self, body: bytes) -> int:
        """Replaces a scope's hot prefixes; returns the event time of the message."""
        found = msgspec.msgpack.decode(body, type=Candidates)
        if found.at_ms < self._at_ms.get(found.scope, 0):
            return found.at_ms
        self._take(found)
        if found.candidates:
            self._store.put(path(found.scope), body)
        else:
            self._store.remove(path(found.scope))
        return found.at_ms

    def wait(self, scope: str, until_ms: int) -> None:
        """A scope's best draft cannot be paid before some time."""
        self._wake_ms[scope] = min(self._lapse_ms.get(scope, 0), until_ms)

    def touched(self, scope: str) -> None:
        """Something was heard of one of a scope's targets."""
        self._wake_ms.pop(scope, None)

    def expire(self, at_ms: int) -> None:
        """Drops the candidates that nobody has confirmed for too long."""
        life_ms = self._config.scaled(self._config.candidates_life_ms)
        for scope in [scope for scope, seen_ms in self._at_ms.items() if at_ms - seen_ms > life_ms]:
            self._drop(scope)
            self._store.remove(path(scope))

    def review(self, at_ms: int, ready: Ready, policy: PolicyBook, full: bool) -> Review:
        """Looks at every scope's candidates.

        Args:
            full: look at all, so that the counts are complete; else only where something can have changed.
        """
        self._refresh(ready, policy)
        review = Review([])
        for scope in sorted(self._hot):
            if not full and self._wake_ms.get(scope, 0) > at_ms:
                continue
            review.scopes += 1
            self._review_scope(scope, at_ms, ready, policy, review)
        return review

    def rewarm(self, scope: str, key: str, replica: str, at_ms: int, ready: Ready, policy: PolicyBook) -> Draft | None:
        """A draft for a hot prefix that one replica has just lost; None where it is not hot, not ready, or too soon."""
        plan = policy.plan(scope)
        hot = self._hot.get(scope, {}).get(key)
        if hot is None or hot.tokens < ready.block_tokens or hot.candidate.p_asked < plan.min_p_asked:
            return None
        if not plan.rewarm or not plan.prefixes or policy.frozen(scope) or replica not in ready.names:
            return None
        target = self._memory.get(scope, key)
        now = bucket(at_ms, self._config.scaled(plan.prefix_repeat_ms))
        attempt = 1
        if target is not None and target.bucket != NO_BUCKET:
            pause_ms = self._config.scaled(self._config.rewarm_pause_ms)
            if target.live(at_ms) or at_ms < target.issued_ms + pause_ms or now < target.bucket:
                return None
            attempt = target.attempt + 1
        return self._draft(scope, hot, at_ms, ready, [replica], now, attempt, TRIGGER_LOST, plan, policy)

    def allowance(self, scope: str, ready: Ready, policy: PolicyBook) -> Allowance:
        """What a scope may spend on prefill: its share of a part of every ready replica's."""
        self._refresh(ready, policy)
        budget = policy.budget()
        rate = budget.prefill_share * self._prefill_per_s(budget) * len(ready.names) * self._shares.get(scope, 0.0)
        return Allowance(rate, rate * self._config.scaled(budget.burst_ms) / 1000)

    def restore(self, blob: bytes) -> None:
        """Takes back one scope's candidates."""
        self._take(msgspec.msgpack.decode(blob, type=Candidates))

    def _review_scope(self, scope: str, at_ms: int, ready: Ready, policy: PolicyBook, review: Review) -> None:
        hot = self._hot[scope]
        review.candidates += len(hot)
        plan = policy.plan(scope)
        if policy.frozen(scope):
            review.frozen += 1
            self._wake_ms[scope] = NEVER_MS
            return
        if not plan.prefixes or not ready.names:
            self._wake_ms[scope] = NEVER_MS
            return
        lead_ms = self._config.scaled(plan.lead_ms)
        repeat_ms = self._config.scaled(plan.prefix_repeat_ms)
        now = bucket(at_ms, repeat_ms)
        wake_ms, drafted = NEVER_MS, False
        memory = self._memory
        for key, one in hot.items():
            target = memory.get(scope, key)
            attempt = 1
            if target is None:
                names = list(ready.names)
            else:
                names = target.missing(ready, at_ms + lead_ms)
                lapse_ms = NEVER_MS
                if len(names) < len(ready.names):
                    untils = (target.resident_until(n, m) for n, m in zip(ready.names, ready.marks, strict=True))
                    lapse_ms = min(until for until in untils if until > at_ms + lead_ms) - lead_ms
                    wake_ms = min(wake_ms, lapse_ms)
                if target.live(at_ms) or not names or target.bucket >= now:
                    review.suppressed += 1
                    soonest = at_ms if names else lapse_ms
                    if target.bucket >= now:
                        soonest = max(soonest, (target.bucket + 1) * repeat_ms)
                    if target.live(at_ms):
                        soonest = max(soonest, target.expires_ms)
                    wake_ms = min(wake_ms, soonest)
                    continue
                attempt = target.next_attempt(now, at_ms)
            if one.tokens < ready.block_tokens or one.candidate.p_asked < plan.min_p_asked:
                continue
            draft = self._draft(scope, one, at_ms, ready, names, now, attempt, TRIGGER_HOT, plan, policy)
            if draft.worth.expected_ms >= plan.min_saved_ms:
                review.drafts.append(draft)
                drafted = True
        self._lapse_ms[scope] = wake_ms
        self._wake_ms[scope] = at_ms if drafted else wake_ms

    def _draft(
        self,
        scope: str,
        hot: _Hot,
        at_ms: int,
        ready: Ready,
        missing: list[str],
        now: int,
        attempt: int,
        trigger: str,
        plan: PlanPolicy,
        policy: PolicyBook,
    ) -> Draft:
        candidate, replicas = hot.candidate, len(ready.names)
        names = tuple(missing[: plan.copies])
        stay_ms = self._config.scaled(plan.prefix_resident_ms)
        # A replica that has just said so is known to lack it; of the others only natural traffic can have warmed it.
        prior = 1.0 if trigger == TRIGGER_LOST else p_absent_prior(candidate.rate_per_s, replicas, stay_ms)
        worth = Worth(
            p_asked=candidate.p_asked,
            p_absent=p_absent(replicas - len(missing), len(missing), prior),
            saved_ms=hot.tokens / self._prefill_per_s(policy.budget()) * 1000,
            cost=float(hot.tokens * len(names)),
        )
        return Draft(
            scope=scope,
            key=hot.key,
            source=(candidate, hot.root),
            unit=candidate.unit,
            bucket=now,
            attempt=attempt,
            life_ms=self._config.life_ms(plan.prefix_life_ms),
            repeat_ms=self._config.scaled(plan.prefix_repeat_ms),
            names=names,
            charge=float(hot.tokens),
            worth=worth,
            trigger=trigger,
            qos=_qos(plan),
            order=worth.density,
            tokens=hot.tokens,
            evidence={
                "requests": candidate.requests,
                "rate_per_s": candidate.rate_per_s,
                "last_asked_ms_ago": float(max(0, at_ms - candidate.last_ms)),
                "p_absent_prior": prior,
                "replicas_ready": float(replicas),
                "replicas_missing": float(len(missing)),
            },
        )

    def _prefill_per_s(self, budget: BudgetPolicy) -> float:
        return budget.prefill_tokens_per_s * self._config.time_scale

    def _refresh(self, ready: Ready, policy: PolicyBook) -> None:
        """Forgets what was derived from another policy, fleet or set of scopes."""
        seen = (policy, policy.revision, ready, self._scopes_version)
        if self._seen != seen:
            self._seen = seen
            self._wake_ms.clear()
            self._shares = shares(self._hot, policy)

    def _take(self, found: Candidates) -> None:
        self._wake_ms.pop(found.scope, None)
        if not found.candidates:
            self._drop(found.scope)
            return
        hot: dict[str, _Hot] = {}
        for candidate in found.candidates:
            key = prefix_key(candidate.hashes[-HASH_BYTES:].hex())
            # The same segments under two salts are one target: the hotter one stands for both.
            if key not in hot:
                hot[key] = _Hot(candidate, found.roots[candidate.root], key, sum(candidate.tokens))
        self._scopes_version += found.scope not in self._hot
        self._hot[found.scope] = hot
        self._at_ms[found.scope] = found.at_ms

    def _drop(self, scope: str) -> None:
        self._scopes_version += self._hot.pop(scope, None) is not None
        self._at_ms.pop(scope, None)
        self._wake_ms.pop(scope, None)
        self._lapse_ms.pop(scope, None)


def _qos(plan: PlanPolicy) -> Qos:
    qos: Qos = plan.qos  # type: ignore[assignment]
    return qos
