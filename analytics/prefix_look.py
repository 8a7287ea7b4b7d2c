"""A look at a scope's hot prefixes: which are worth a warm-up now, and until when another look would find the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from analytics.commands import NEVER_MS, Offer
from analytics.envelopes import Candidate, Root
from analytics.memory import TargetMemory
from analytics.plan_config import PlanConfig
from analytics.policy import BudgetPolicy, PolicyBook
from analytics.replicas import Ready
from analytics.worth import p_absent, p_absent_prior
from schemas.canonical import bucket
from schemas.warmup_command import QOS_RANK

Ended = Callable[[str, Root, int], bool]


class Hot(NamedTuple):
    """A candidate, and what every look at it needs."""

    candidate: Candidate
    root: Root
    tokens: int


@dataclass(frozen=True)
class Look:
    """What the last look at a scope found, and until when another one would find the same.

    Attributes:
        offers: worth a warm-up at that time. suppressed: candidates that were live or resident.
        frozen: whether the scope may not act.
        lapse_ms: when a suppressed candidate may come free, or what is known of a replica ends.
    """

    offers: tuple[Offer, ...] = ()
    suppressed: int = 0
    frozen: bool = False
    lapse_ms: int = NEVER_MS


def prefill_per_s(budget: BudgetPolicy, config: PlanConfig) -> float:
    """Tokens that a replica prefills in a second of event time."""
    return budget.prefill_tokens_per_s * config.time_scale


def look_at(
    scope: str,
    hot: Mapping[str, Hot],
    at_ms: int,
    ready: Ready,
    memory: TargetMemory,
    config: PlanConfig,
    policy: PolicyBook,
    ended: Ended,
) -> Look:
    """Looks at the hot prefixes of a scope, by target key.

    Args:
        ended: whether a change has ended what a scope's prefixes with some root were rendered with.
    """
    plan = policy.plan(scope)
    if policy.frozen(scope):
        return Look(frozen=True)
    if not plan.prefixes or not ready.names:
        return Look()
    get = memory.get
    soon_ms = at_ms + config.scaled(plan.lead_ms)
    repeat_ms = config.scaled(plan.prefix_repeat_ms)
    now = bucket(at_ms, repeat_ms)
    stay_ms = config.scaled(plan.prefix_resident_ms)
    ms_per_token = 1000 / prefill_per_s(policy.budget(), config)
    qos_rank, replicas, copies = QOS_RANK[plan.qos], len(ready.names), plan.copies
    min_saved_ms = plan.min_saved_ms / config.time_scale
    offers = []
    suppressed, lapse_ms = 0, NEVER_MS
    for key, (candidate, root, tokens) in hot.items():
        if ended(scope, root, at_ms):
            continue
        target = get(scope, key)
        missing, attempt = ready.names, 1
        if target is not None:
            missing = target.missing(ready, soon_ms)
            free_ms = at_ms
            if len(missing) < replicas:
                lapses = target.first_lapse(ready, soon_ms) - soon_ms + at_ms
                lapse_ms = min(lapse_ms, lapses)
                if not missing:
                    free_ms = lapses
            if target.bucket >= now:
                free_ms = max(free_ms, (target.bucket + 1) * repeat_ms)
            if target.live(at_ms):
                free_ms = max(free_ms, target.expires_ms)
            if free_ms > at_ms:
                suppressed += 1
                lapse_ms = min(lapse_ms, free_ms)
                continue
            attempt = target.next_attempt(now, at_ms)
        if tokens < ready.block_tokens:
            continue
        prior = p_absent_prior(candidate.rate_per_s, replicas, stay_ms)
        hits = candidate.p_asked * p_absent(replicas - len(missing), len(missing), prior)
        if hits * tokens * ms_per_token >= min_saved_ms:
            density = hits * ms_per_token / min(copies, len(missing))
            offers.append(Offer(qos_rank, -density, scope, key, missing, attempt))
    return Look(tuple(offers), suppressed, False, lapse_ms)
