"""The running rules: typed views of what `warmup.policy` says, per scope, with defaults (DESIGN §3.2).

A `PolicyBook` holds the newest Policy of every (scope, section, writer). A view merges, in rising order: the defaults,
the sections of scope `*`, the sections of the scope itself; two writers of the same section merge by (at_ms, writer),
so that a view does not depend on the order of arrival. `frozen` is the OR over all writers.

Durations are given in unscaled event time; what applies them divides by `time_scale`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from analytics.knobs import Knob, knob, knobs
from schemas.policy import EVERY_SCOPE, Policy


@dataclass(frozen=True)
class FocusPolicy:
    """Section `focus`: when a crowd has gathered (D2, spec rules)."""

    enabled: bool = knob(True, "Whether focus is looked for at all.")
    entropy_max_bits: float = knob(2.1, "Below this entropy a minute counts as focused.", unit="bits", low=0, high=32)
    fall_share: float = knob(0.15, "entropy_only: by how much entropy must fall, twice running.", low=0, high=1)
    fall_bits: float = knob(
        0.08, "should_preheat: by how much entropy must fall a minute, on average.", unit="bits/min", low=0, high=32
    )
    keys: int = knob(50, "How many of the hottest keys a focus names.", unit="keys", low=1, high=1000)
    boost: float = knob(2.0, "Factor on the demand of an embedding whose query is in a focus.", low=1, high=100)


@dataclass(frozen=True)
class ScorePolicy:
    """Section `score`: the dynamic score of a query (D6, spec)."""

    decay_ms: int = knob(
        300_000,
        "Time after which an arrival counts 1/e.",
        unit="ms",
        low=1000,
        high=86_400_000,
    )
    queue: int = knob(1000, "How many queries a scope's queue keeps.", unit="queries", low=1, high=100_000)
    sort_ms: int = knob(30_000, "How often the queue is sorted again.", unit="ms", low=1000, high=3_600_000)
    drop_below: float = knob(0.25, "A score below this leaves the queue.", low=0, high=1)


@dataclass(frozen=True)
class PlanPolicy:
    """Section `plan`: what may be warmed, for how long a command lives, what is worth it (D15)."""

    prefixes: bool = knob(True, "Whether KV prefixes are warmed.")
    embeddings: bool = knob(True, "Whether embeddings are warmed from the queue of hot queries.")
    second_sight: bool = knob(True, "Whether a query's second sight is embedded and warmed at once.")
    rewarm: bool = knob(True, "Whether a hot prefix that a replica lost is warmed again at once.")
    lost_share: float = knob(
        0.25, "A prefix that lost more than this share of its tokens on a replica counts as lost there.", low=0, high=1
    )
    shadow: bool = knob(False, "Commands are sent as shadow: executors record them and apply nothing.")
    qos: str = knob(
        "burstable",
        "Class of this scope's commands under pressure.",
        choices=("guaranteed", "burstable", "best_effort"),
    )
    prefix_repeat_ms: int = knob(
        60_000, "A prefix is commanded at most once per such interval.", unit="ms", low=1000, high=86_400_000
    )
    embedding_repeat_ms: int = knob(
        3_600_000, "An embedding is commanded at most once per such interval.", unit="ms", low=1000, high=86_400_000
    )
    prefix_life_ms: int = knob(
        30_000, "A prefix command expires this long after it was issued.", unit="ms", low=1000, high=3_600_000
    )
    embedding_life_ms: int = knob(
        120_000, "An embedding command expires this long after it was issued.", unit="ms", low=1000, high=3_600_000
    )
    prefix_resident_ms: int = knob(
        120_000,
        "How long a warmed prefix is taken as resident when nothing else is heard of it.",
        unit="ms",
        low=1000,
        high=86_400_000,
    )
    embedding_resident_ms: int = knob(
        3_600_000, "How long a warmed embedding is taken as resident.", unit="ms", low=1000, high=604_800_000
    )
    lead_ms: int = knob(
        5_000, "How long before its residency ends a target may be warmed again.", unit="ms", low=0, high=600_000
    )
    copies: int = knob(1_000, "On how many replicas a prefix is warmed, at most.", unit="replicas", low=1, high=10_000)
    min_saved_ms: float = knob(
        1.0,
        "A prefix whose expected saving is below this is left; shortened by time_scale.",
        unit="ms",
        low=0,
        high=60_000,
    )


@dataclass(frozen=True)
class BudgetPolicy:
    """Section `budget`: what warm-ups may spend, per pool."""

    prefill_share: float = knob(0.01, "Share of every replica's prefill that warm-ups may use.", low=0, high=1)
    prefill_tokens_per_s: float = knob(
        20_000.0,
        "What one replica prefills; time_scale multiplies it, as it shortens the prefill.",
        unit="tokens/s",
        low=1,
        high=1e9,
    )
    burst_ms: int = knob(30_000, "How long an unused budget is saved up.", unit="ms", low=1000, high=3_600_000)
    embeddings_per_s: float = knob(200.0, "Embedding commands a pool issues.", unit="commands/s", low=0, high=1e6)
    embeds_per_s: float = knob(50.0, "Queries that the job embeds in a scope.", unit="queries/s", low=0, high=1e6)
    embeds_burst: float = knob(100.0, "How many embeds may come at once.", unit="queries", low=1, high=1e6)


@dataclass(frozen=True)
class QuotaPolicy:
    """Section `quota`: the static share of a scope in every pool."""

    share: float = knob(
        -1.0,
        "Share of each budget that belongs to this scope; -1 means an equal part of what no other scope has named.",
        low=-1,
        high=1,
    )


@dataclass(frozen=True)
class ExperimentPolicy:
    """Section `experiment`: the hold-out (D17)."""

    hold_share: float = knob(0.1, "Share of units that are never warmed in their period.", low=0, high=1)
    salt: str = knob("stoker", "Start of the salt; the period (the day of event time) is put behind it.")


@dataclass(frozen=True)
class FreezePolicy:
    """Section `freeze`: a writer's brake. A scope is frozen while any writer says so."""

    frozen: bool = knob(True, "Whether this writer freezes the scope.")
    reason: str = knob("", "Why, for people.")


@dataclass(frozen=True)
class PolicyDefaults:
    """What holds where no Policy says otherwise."""

    focus: FocusPolicy = FocusPolicy()
    score: ScorePolicy = ScorePolicy()
    plan: PlanPolicy = PlanPolicy()
    budget: BudgetPolicy = BudgetPolicy()
    quota: QuotaPolicy = QuotaPolicy()
    experiment: ExperimentPolicy = ExperimentPolicy()


SECTIONS: Mapping[str, Any] = {
    "focus": FocusPolicy,
    "score": ScorePolicy,
    "plan": PlanPolicy,
    "budget": BudgetPolicy,
    "quota": QuotaPolicy,
    "experiment": ExperimentPolicy,
    "freeze": FreezePolicy,
}
"""The sections that this version reads, and their keys. Others are kept, and none of their keys is known."""

_KNOBS: Mapping[str, dict[str, Knob]] = {section: knobs(kind) for section, kind in SECTIONS.items()}

V = TypeVar("V")


def entry_key(policy: Policy) -> str:
    """Where a Policy is kept in a snapshot: scope / section / writer, the key of its topic."""
    return f"{policy.scope}/{policy.section}/{policy.writer}"


class PolicyBook:
    """The newest Policy of every (scope, section, writer), and typed views over them.

    Views are cached until the next change. A deleted Policy is kept as the version it has, so that an older one cannot
    come back.
    """

    def __init__(self, defaults: PolicyDefaults | None = None) -> None:
        self._defaults = defaults or PolicyDefaults()
        self._policies: dict[str, Policy] = {}
        self._views: dict[tuple[str, str], Any] = {}
        self._frozen: dict[str, tuple[str, ...]] = {}
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
        return {key: msgspec.json.encode(policy) for key, policy in self._policies.items()}

    def apply(self, policy: Policy) -> bool:
        """Takes a Policy when its version is greater than the held one's; says whether it was taken."""
        key = entry_key(policy)
        held = self._policies.get(key)
        if held is not None and policy.version <= held.version:
            return False
        self._policies[key] = policy
        self.revision += 1
        self._views.clear()
        self._frozen.clear()
        return True

    @property
    def ignored(self) -> tuple[str, ...]:
        """Keys of held Policies that are unknown, of the wrong type or out of range: `scope/section/writer/key`."""
        found = []
        for name, policy in sorted(self._policies.items()):
            if policy.deleted:
                continue
            known = _KNOBS.get(policy.section, {})
            for key, value in sorted(policy.body.items()):
                if key not in known or not known[key].accepts(value):
                    found.append(f"{name}/{key}")
        return tuple(found)

    def version(self, scope: str) -> int:
        """Greatest version among the policies that hold for a scope: what a command says it was decided under."""
        return max((policy.version for policy in self._of(scope)), default=0)

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

    def frozen(self, scope: str) -> tuple[str, ...]:
        """The reasons of all writers that freeze this scope, sorted; empty when it may act."""
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

    def _of(self, scope: str) -> list[Policy]:
        return [policy for policy in self._policies.values() if policy.scope in (scope, EVERY_SCOPE)]

    def _view(self, section: str, scope: str, default: V) -> V:
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
