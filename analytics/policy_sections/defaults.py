"""All sections by name, and what holds where no Policy says otherwise."""

# ruff: noqa: RUF009 - sections are frozen: one object may be everybody's default

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analytics.policy_sections.brakes import BreakerPolicy, FreezePolicy
from analytics.policy_sections.plan import PlanPolicy
from analytics.policy_sections.signals import FocusPolicy, PatternPolicy, ScorePolicy
from analytics.policy_sections.spending import BudgetPolicy, ExperimentPolicy, QuotaPolicy
from analytics.policy_sections.targets import AdapterPolicy, PromptPolicy, SchedulePolicy


@dataclass(frozen=True)
class PolicyDefaults:
    """What holds where no Policy says otherwise."""

    focus: FocusPolicy = FocusPolicy()
    score: ScorePolicy = ScorePolicy()
    plan: PlanPolicy = PlanPolicy()
    budget: BudgetPolicy = BudgetPolicy()
    quota: QuotaPolicy = QuotaPolicy()
    experiment: ExperimentPolicy = ExperimentPolicy()
    schedule: SchedulePolicy = SchedulePolicy()
    pattern: PatternPolicy = PatternPolicy()
    adapter: AdapterPolicy = AdapterPolicy()
    prompt: PromptPolicy = PromptPolicy()
    breaker: BreakerPolicy = BreakerPolicy()


SECTIONS: Mapping[str, Any] = {
    "focus": FocusPolicy,
    "score": ScorePolicy,
    "plan": PlanPolicy,
    "budget": BudgetPolicy,
    "quota": QuotaPolicy,
    "experiment": ExperimentPolicy,
    "schedule": SchedulePolicy,
    "pattern": PatternPolicy,
    "adapter": AdapterPolicy,
    "prompt": PromptPolicy,
    "breaker": BreakerPolicy,
    "freeze": FreezePolicy,
}
"""The sections that this version reads, and their keys. Others are kept, and none of their keys is known."""
