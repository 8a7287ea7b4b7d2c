"""What commands about hot prefixes say: that one is warmed, warmed again where it was lost, or touched to stay."""

from __future__ import annotations

from msgspec import structs

from analytics.commands import Draft, Offer
from analytics.copies import spread
from analytics.hot_prefixes import HotPrefixes
from analytics.memory import TargetMemory
from analytics.plan_config import PlanConfig
from analytics.policy import PolicyBook
from analytics.prefix_look import Ended, Hot, now_of, prefill_per_s, prior_of, stay_of
from analytics.prefix_places import places
from analytics.replicas import Ready
from analytics.stay_time import StayTime
from analytics.targets import NO_BUCKET
from analytics.worth import Worth, kept_of_displaced, p_absent
from schemas.canonical import bucket
from schemas.warmup_command import Qos

TRIGGER_HOT = "hot_prefix"
TRIGGER_LOST = "lost_prefix"
TRIGGER_RENEW = "renewed_prefix"


class PrefixDrafts:
    """Drafts of one pool's hot prefixes.

    Args:
        hot: the prefixes, as their planner holds them.
        stay: how long replicas keep what nobody asks for.
    """

    def __init__(self, config: PlanConfig, memory: TargetMemory, hot: HotPrefixes, stay: StayTime) -> None:
        self._config = config
        self._memory = memory
        self._hot = hot
        self._stay = stay

    def of(self, offer: Offer, at_ms: int, ready: Ready, policy: PolicyBook) -> Draft:
        """An offer in full."""
        if offer.renews:
            return self._renewal(offer, at_ms, ready, policy)
        return self._draft(offer, at_ms, ready, TRIGGER_HOT, policy)

    def rewarm(
        self,
        scope: str,
        key: str,
        replica: str,
        at_ms: int,
        ready: Ready,
        policy: PolicyBook,
        ended: Ended | None = None,
    ) -> Draft | None:
        """A draft for a hot prefix that one replica has just lost; None where it is not hot, over, or too soon."""
        plan = policy.plan(scope)
        hot = self._hot.get(scope, key)
        if hot is None or replica not in self._places(scope, hot, at_ms, ready).names:
            return None
        if ended and hot.candidate.last_ms < ended(scope, hot.root, at_ms):
            return None
        margin_per_s = self._stay.margin_per_s
        if margin_per_s is not None and not kept_of_displaced(
            hot.candidate.rate_per_s / len(ready.names), margin_per_s
        ):
            return None
        if not plan.rewarm or not plan.prefixes or policy.frozen(scope):
            return None
        target = self._memory.get(scope, key)
        now = bucket(at_ms, self._config.scaled(plan.prefix_repeat_ms))
        attempt = 1
        if target is not None and target.bucket != NO_BUCKET:
            pause_ms = self._config.scaled(self._config.rewarm_pause_ms)
            rests = at_ms < max(target.issued_ms + pause_ms, target.rests_until_ms)
            if target.live(at_ms) or rests or now < target.bucket:
                return None
            attempt = target.attempt + 1
        offer = Offer(0, 0.0, scope, key, (replica,), attempt)
        return self._draft(offer, at_ms, ready, TRIGGER_LOST, policy)

    def _places(self, scope: str, hot: Hot, at_ms: int, ready: Ready) -> Ready:
        return places(ready, hot.tokens, scope, hot.root.adapter, self._memory, at_ms)

    def _draft(self, offer: Offer, at_ms: int, ready: Ready, trigger: str, policy: PolicyBook) -> Draft:
        scope, plan = offer.scope, policy.plan(offer.scope)
        hot = self._hot.get(scope, offer.key)
        assert hot is not None
        candidate, tokens = hot.candidate, hot.tokens
        replicas, missing = len(ready.names), len(offer.missing)
        lost = trigger == TRIGGER_LOST
        held = self._places(scope, hot, at_ms, ready).but(offer.missing)
        copies = plan.copies - len(held)
        names = offer.missing if lost else spread(offer.missing, copies, offer.key, ready.zone_of, held)
        stay_ms = stay_of(plan, self._config, self._stay.ms)
        repeat_ms = self._config.scaled(plan.prefix_repeat_ms)
        # A replica that has just said so is known to lack it; of the others only natural traffic can have warmed it.
        prior = 1.0
        if not lost:
            now = now_of(at_ms, ready, policy.budget(), self._config, self._stay.margin_per_s)
            target = self._memory.get(scope, offer.key)
            prior = prior_of(candidate.rate_per_s, candidate.last_ms, stay_ms, now, target)
        worth = Worth(
            p_asked=candidate.p_asked,
            p_absent=p_absent(replicas - len(names), len(names), prior),
            saved_ms=tokens / prefill_per_s(policy.budget(), self._config) * 1000,
            cost=float(tokens * len(names)),
        )
        qos: Qos = plan.qos  # type: ignore[assignment]
        return Draft(
            scope=scope,
            key=offer.key,
            source=(candidate, hot.root),
            unit=candidate.unit,
            bucket=bucket(at_ms, repeat_ms),
            attempt=offer.attempt,
            life_ms=self._config.life_ms(plan.prefix_life_ms),
            repeat_ms=repeat_ms,
            names=names,
            charge=float(tokens),
            worth=worth,
            trigger=trigger,
            qos=qos,
            tokens=tokens,
            evidence={
                "requests": candidate.requests,
                "rate_per_s": candidate.rate_per_s,
                "last_asked_ms_ago": float(max(0, at_ms - candidate.last_ms)),
                "p_absent_prior": prior,
                **self._stay.evidence(float(stay_ms)),
                "replicas_ready": float(replicas),
                "replicas_missing": float(missing),
            },
        )

    def _renewal(self, offer: Offer, at_ms: int, ready: Ready, policy: PolicyBook) -> Draft:
        """An offer to touch what is resident: it computes a block, and saves what would be gone by then else.

        What it computes is paid for when it is known; see `EnginePlanner`.
        """
        draft = self._draft(offer, at_ms, ready, TRIGGER_RENEW, policy)
        now = now_of(at_ms, ready, policy.budget(), self._config, self._stay.margin_per_s)
        p_asked, charge = draft.worth.p_asked, float(ready.block_tokens)
        p_kept = -offer.minus_density * charge / (now.ms_per_token * draft.tokens)
        return structs.replace(
            draft,
            names=offer.missing,
            charge=0.0,
            worth=Worth(p_asked, min(1.0, p_kept / p_asked), draft.worth.saved_ms, charge * len(offer.missing)),
            evidence={**draft.evidence, "margin_per_s": now.margin_per_s or 0.0, "replicas_missing": 0.0},
        )
