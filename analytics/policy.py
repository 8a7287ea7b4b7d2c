"""The running rules: typed views of what `warmup.policy` says, per scope, with defaults (DESIGN §3.2).

A `PolicyBook` holds the newest Policy of every (scope, section, writer). A view merges, in rising order: the defaults,
the sections of scope `*`, the sections of the scope itself; two writers of the same section merge by (at_ms, writer),
so that a view does not depend on the order of arrival. `frozen` is the OR over all writers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from analytics.knobs import Knob, knobs
from analytics.policy_sections import (
    SECTIONS,
    AdapterPolicy,
    BreakerPolicy,
    BudgetPolicy,
    ExperimentPolicy,
    FocusPolicy,
    FreezePolicy,
    PatternPolicy,
    PlanPolicy,
    PolicyDefaults,
    PromptPolicy,
    QuotaPolicy,
    SchedulePolicy,
    ScorePolicy,
)
from schemas.policy import EVERY_SCOPE, Policy

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
    "PolicyBook",
    "PolicyDefaults",
    "PromptPolicy",
    "QuotaPolicy",
    "SchedulePolicy",
    "ScorePolicy",
]

_KNOBS: Mapping[str, dict[str, Knob]] = {section: knobs(kind) for section, kind in SECTIONS.items()}

V = TypeVar("V")


def entry_key(policy: Policy) -> str:
    """Where a Policy is kept in a snapshot: scope / section / writer, the key of its topic."""
    return f"{policy.scope}/{policy.section}/{policy.writer}"


class PolicyBook:
    """The newest Policy of every (scope, section, writer), and typed views over them.

    Views are cached until the next change, and scopes without a Policy of their own share one: producers name scopes. A
    deleted Policy is kept as the version it has, so that an older one cannot come back.
    """

    def __init__(self, defaults: PolicyDefaults | None = None) -> None:
        self._defaults = defaults or PolicyDefaults()
        self._policies: dict[str, dict[str, Policy]] = {}
        self._views: dict[tuple[str, str], Any] = {}
        self._frozen: dict[str, tuple[str, ...]] = {}
        self._versions: dict[str, int] = {}
        self.revision = 0
        """Grows with every Policy that was taken: what was derived from a book holds until it changes."""

    @classmethod
    def of(cls, entries: Mapping[str, bytes], defaults: PolicyDefaults | None = None) -> PolicyBook:
        """The book that `entries()` described."""
        book = cls(defaults)
        for blob in entries.values():
            book.apply(msgspec.json.decode(blob, type=Policy))
        return book

    def entries(self) -> dict[str, bytes]:
        """Every held Policy as the JSON of its topic, by `entry_key`; what broadcast state keeps."""
        return {key: msgspec.json.encode(policy) for key, policy in self._held()}

    def apply(self, policy: Policy) -> bool:
        """Takes a Policy when its version is greater than the held one's; says whether it was taken."""
        key = entry_key(policy)
        scoped = self._policies.setdefault(policy.scope, {})
        held = scoped.get(key)
        if held is not None and policy.version <= held.version:
            return False
        scoped[key] = policy
        self.revision += 1
        self._views.clear()
        self._frozen.clear()
        self._versions.clear()
        return True

    @property
    def ignored(self) -> tuple[str, ...]:
        """Keys of held Policies that are unknown, of the wrong type or out of range: `scope/section/writer/key`."""
        found = []
        for name, policy in sorted(self._held()):
            if policy.deleted:
                continue
            known = _KNOBS.get(policy.section, {})
            for key, value in sorted(policy.body.items()):
                if key not in known or not known[key].accepts(value):
                    found.append(f"{name}/{key}")
        return tuple(found)

    def version(self, scope: str) -> int:
        """Greatest version among the policies that hold for a scope: what a command says it was decided under."""
        scope = self._shared(scope)
        if scope not in self._versions:
            self._versions[scope] = max((policy.version for policy in self._of(scope)), default=0)
        return self._versions[scope]

    def focus(self, scope: str) -> FocusPolicy:
        """When a crowd has gathered."""
        return self._view("focus", scope, self._defaults.focus)

    def score(self, scope: str) -> ScorePolicy:
        """How queries are scored."""
        return self._view("score", scope, self._defaults.score)

    def plan(self, scope: str) -> PlanPolicy:
        """What may be warmed, and for how long."""
        return self._view("plan", scope, self._defaults.plan)

    def budget(self, scope: str = EVERY_SCOPE) -> BudgetPolicy:
        """What may be spent. A pool's own budgets are those of scope `*`."""
        return self._view("budget", scope, self._defaults.budget)

    def quota(self, scope: str) -> QuotaPolicy:
        """The share of a scope."""
        return self._view("quota", scope, self._defaults.quota)

    def experiment(self, scope: str) -> ExperimentPolicy:
        """The hold-out."""
        return self._view("experiment", scope, self._defaults.experiment)

    def schedule(self, scope: str) -> SchedulePolicy:
        """How announced changes are prepared."""
        return self._view("schedule", scope, self._defaults.schedule)

    def pattern(self, scope: str) -> PatternPolicy:
        """Whether patterns of sessions are warmed."""
        return self._view("pattern", scope, self._defaults.pattern)

    def adapter(self, scope: str) -> AdapterPolicy:
        """Which adapters are loaded, and which may go."""
        return self._view("adapter", scope, self._defaults.adapter)

    def prompt(self, scope: str) -> PromptPolicy:
        """How managed prompts are warmed."""
        return self._view("prompt", scope, self._defaults.prompt)

    def breaker(self) -> BreakerPolicy:
        """When warming a replica would do harm. Replicas belong to no scope: it is that of scope `*`."""
        return self._view("breaker", EVERY_SCOPE, self._defaults.breaker)

    def frozen(self, scope: str) -> tuple[str, ...]:
        """The reasons of all writers that freeze this scope, sorted; empty when it may act."""
        scope = self._shared(scope)
        found = self._frozen.get(scope)
        if found is None:
            reasons = set()
            for policy in self._of(scope):
                if policy.section != "freeze" or policy.deleted:
                    continue
                freeze = _merged(FreezePolicy(), [policy])
                if freeze.frozen:
                    reasons.add(freeze.reason or policy.writer)
            found = self._frozen[scope] = tuple(sorted(reasons))
        return found

    def _held(self) -> list[tuple[str, Policy]]:
        return [held for scoped in self._policies.values() for held in scoped.items()]

    def _shared(self, scope: str) -> str:
        """The scope whose views hold for a scope."""
        return scope if scope in self._policies else EVERY_SCOPE

    def _of(self, scope: str) -> list[Policy]:
        """Policies of every scope, and of this one."""
        scopes = {EVERY_SCOPE, scope}
        return [policy for each in sorted(scopes) for policy in self._policies.get(each, {}).values()]

    def _view(self, section: str, scope: str, default: V) -> V:
        scope = self._shared(scope)
        key = (section, scope)
        found: V | None = self._views.get(key)
        if found is None:
            held = [policy for policy in self._of(scope) if policy.section == section and not policy.deleted]
            held.sort(key=lambda policy: (policy.scope != EVERY_SCOPE, policy.at_ms, policy.writer))
            found = self._views[key] = _merged(default, held)
        return found


def _merged(default: V, policies: list[Policy]) -> V:
    changes: dict[str, Any] = {}
    for policy in policies:
        known = _KNOBS[policy.section]
        for key, value in policy.body.items():
            if key in known and known[key].accepts(value):
                changes[key] = known[key].coerced(value)
    return dataclasses.replace(default, **changes) if changes else default  # type: ignore[type-var]
