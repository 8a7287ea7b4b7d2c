"""What commands about answers say: that one goes into the semantic cache, or that one must leave it."""

from __future__ import annotations

from analytics.commands import Draft
from analytics.known_answers import KnownAnswer
from analytics.plan_config import PlanConfig
from analytics.policy import PlanPolicy
from analytics.withdrawals import WithdrawalRecord
from analytics.worth import Worth
from schemas import Response
from schemas.canonical import bucket, response_key
from schemas.warmup_command import Action, Qos

TRIGGER_REWARDED = "rewarded_answer"


def warming(
    config: PlanConfig,
    plan: PlanPolicy,
    at_ms: int,
    scope: str,
    query: str,
    answer: KnownAnswer,
    fingerprint: str,
    bytes: int,
    *,
    attempt: int,
    version: int,
    reward: float,
    p_asked: float,
    evidence: dict[str, float],
) -> Draft:
    """An answer goes into the cache.

    Args:
        fingerprint, bytes: of its query's vector.
        version: content version.
    """
    saved_ms = config.response_saved_ms / config.time_scale
    return _draft(
        config,
        plan,
        at_ms,
        scope,
        query,
        answer,
        fingerprint,
        action="warm",
        attempt=attempt,
        version=version,
        until_ms=at_ms + config.scaled(plan.response_resident_ms),
        worth=Worth(p_asked=p_asked, p_absent=1.0, saved_ms=saved_ms, cost=1.0, reward=reward),
        trigger=TRIGGER_REWARDED,
        evidence=evidence,
        bytes=bytes,
    )


def withdrawing(
    config: PlanConfig, plan: PlanPolicy, at_ms: int, leaving: WithdrawalRecord, attempt: int, earned: tuple[float, int]
) -> Draft:
    """An answer leaves the cache: that is no warm-up, so it costs nothing and is never held out.

    Args:
        earned: mean of its rewards, and how many.
    """
    reward, judgements = earned
    return _draft(
        config,
        plan,
        at_ms,
        leaving.scope,
        leaving.query,
        leaving.answer,
        leaving.fingerprint,
        action="invalidate",
        attempt=attempt,
        version=leaving.version,
        until_ms=at_ms,
        worth=Worth(p_asked=0.0, p_absent=1.0, saved_ms=0.0, cost=1.0, reward=reward),
        trigger=leaving.trigger,
        evidence={"reward": reward, "judgements": float(judgements), "tries": float(leaving.tries + 1)},
        bytes=0,
    )


def _draft(
    config: PlanConfig,
    plan: PlanPolicy,
    at_ms: int,
    scope: str,
    query: str,
    answer: KnownAnswer,
    fingerprint: str,
    *,
    action: Action,
    attempt: int,
    version: int,
    until_ms: int,
    worth: Worth,
    trigger: str,
    evidence: dict[str, float],
    bytes: int,
) -> Draft:
    repeat_ms = config.scaled(plan.response_repeat_ms)
    warm = action == "warm"
    qos: Qos = plan.qos  # type: ignore[assignment]
    target = Response(
        cache=config.response_cache,
        fingerprint=fingerprint,
        query_sha256=query,
        response_ref=answer.ref,
        model=answer.adapter or answer.model,
        template_version=answer.template,
        semantic_version=answer.semantic_version,
        reward=worth.reward,
        until_ms=until_ms,
    )
    return Draft(
        scope=scope,
        key=response_key(config.response_cache, query),
        source=target,
        unit=query,
        bucket=bucket(at_ms, repeat_ms),
        attempt=attempt,
        life_ms=config.life_ms(plan.response_life_ms),
        repeat_ms=repeat_ms,
        names=(),
        charge=1.0 if warm else 0.0,
        worth=worth,
        trigger=trigger,
        qos=qos,
        bytes=bytes,
        evidence=evidence,
        action=action,
        content_version=str(version),
        exempt=not warm,
    )
