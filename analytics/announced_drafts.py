"""What commands about announced changes say: that something is made ready, or that such a command is taken back."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.commands import Draft
from analytics.plan_config import PlanConfig
from analytics.policy import PlanPolicy
from analytics.targets import Target
from analytics.wanted import Wanted
from analytics.worth import Worth
from schemas import Announcement, Cancel, Model
from schemas.canonical import bucket, cancel_key
from schemas.warmup_command import Qos

TRIGGER = "announced"
TRIGGER_WITHDRAWN = "withdrawn"


def preparing(
    message: Announcement,
    wanted: Wanted,
    at_ms: int,
    plan: PlanPolicy,
    interval: int,
    attempt: int,
    life_ms: int,
    repeat_ms: int,
    names: tuple[str, ...],
    saved_ms: float,
) -> Draft:
    """One thing that an announcement asks for.

    Args:
        interval, attempt: of the command's id.
        names: replicas; none in a Redis pool.
        saved_ms: what prefilling it takes on one of them.
    """
    qos: Qos = plan.qos  # type: ignore[assignment]
    return Draft(
        scope=message.scope,
        key=wanted.key,
        source=wanted.target,
        unit=wanted.unit,
        bucket=interval,
        attempt=attempt,
        life_ms=life_ms,
        repeat_ms=repeat_ms,
        names=names,
        # A pool that sleeps has no budget to wake it from.
        charge=0.0 if wanted.action == "wake" else float(max(1, wanted.tokens)),
        worth=Worth(
            p_asked=1.0, p_absent=1.0, saved_ms=saved_ms, cost=float(max(1, wanted.tokens) * max(1, len(names)))
        ),
        trigger=TRIGGER,
        qos=qos,
        tokens=wanted.tokens,
        evidence={"takes_effect_in_ms": float(message.at_ms - at_ms), **dict(wanted.evidence)},
        action=wanted.action,
        content_version=message.version,
        exempt=isinstance(wanted.target, Model) or message.strategy == "full_snapshot",
    )


def cancelling(
    config: PlanConfig, plan: PlanPolicy, message: Announcement, sent: Sequence[Target], at_ms: int
) -> Draft:
    """Commands of an announcement are taken back: that costs nothing, and lives as long as they do."""
    ids = tuple(target.command_id for target in sent)
    key, repeat_ms = cancel_key(ids), config.scaled(plan.prefix_repeat_ms)
    qos: Qos = plan.qos  # type: ignore[assignment]
    return Draft(
        scope=message.scope,
        key=key,
        source=Cancel(command_ids=ids),
        unit=key,
        bucket=bucket(at_ms, repeat_ms),
        attempt=1,
        life_ms=max(config.min_life_ms, max(target.expires_ms for target in sent) - at_ms),
        repeat_ms=repeat_ms,
        names=(),
        charge=0.0,
        worth=Worth(p_asked=0.0, p_absent=1.0, saved_ms=0.0, cost=1.0),
        trigger=TRIGGER_WITHDRAWN,
        qos=qos,
        evidence={"commands": float(len(ids))},
        action="cancel",
        content_version=message.version,
        exempt=True,
    )
