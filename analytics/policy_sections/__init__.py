"""The sections of a policy: what each key means, its unit, range and default; a file a group of sections.

Durations are given in unscaled event time; what applies them divides by `time_scale`.
"""

from analytics.policy_sections.brakes import BreakerPolicy, FreezePolicy
from analytics.policy_sections.defaults import SECTIONS, PolicyDefaults
from analytics.policy_sections.plan import PlanPolicy
from analytics.policy_sections.signals import FocusPolicy, PatternPolicy, ScorePolicy
from analytics.policy_sections.spending import BudgetPolicy, ExperimentPolicy, QuotaPolicy
from analytics.policy_sections.targets import AdapterPolicy, PromptPolicy, SchedulePolicy

__all__ = [
    "SECTIONS",
    "AdapterPolicy",
    "BreakerPolicy",
    "BudgetPolicy",
    "ExperimentPolicy",
    "FocusPolicy",
    "FreezePolicy",
    "PatternPolicy",
    "PlanPolicy",
    "PolicyDefaults",
    "PromptPolicy",
    "QuotaPolicy",
    "SchedulePolicy",
    "ScorePolicy",
]
