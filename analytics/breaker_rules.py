"""The specification's breaker: whether a replica's usage forbids warming (D16). Pure.

`should_break` is the rule given as code, `band` the one given as a table, and `spec` asks either or both. Usage is what
the engine tells: it counts what running requests hold, so idle cached blocks read as free, and warm-ups can destroy a
hot cache while it stands at 0 (vLLM #20302). Hence the tuned breaker (`analytics.breaker`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from analytics.policy_sections import BreakerPolicy

Action = Literal["none", "back_off", "break"]
_SEVERITY: dict[Action, int] = {"none": 0, "back_off": 1, "break": 2}


@dataclass(frozen=True)
class Load:
    """What the specification's rules read of a replica.

    Attributes:
        usage: share of the KV blocks that running requests hold, 0..1.
        waiting: requests that the engine has queued.
        allocations_per_s: blocks stored in the last second.
        p99_ms: of the time to first token; None while nobody asked.
    """

    usage: float
    waiting: int = 0
    allocations_per_s: float = 0.0
    p99_ms: float | None = None


class Advice(NamedTuple):
    """What a rule says.

    Attributes:
        share: of the usual concurrency that warm-ups may have, 0..1.
        p99_budget_ms: what first tokens may take before warm-ups back off; None where nothing is warmed.
        reasons: which figures say so, sorted.
    """

    action: Action
    share: float = 1.0
    p99_budget_ms: float | None = None
    reasons: tuple[str, ...] = ()


def should_break(usage: float, allocations_per_s: float, preheating: bool, policy: BreakerPolicy) -> bool:
    """The rule given as code: much is in use and much is being taken. Less use is enough while warm-ups run."""
    threshold = policy.preheat_usage if preheating else policy.usage
    return usage > threshold and allocations_per_s > policy.allocations


def band(load: Load, policy: BreakerPolicy) -> Advice:
    """The rule given as a table. Backing off: among n requests that wait, warm-ups have one share in n + 1; beyond the
    band's p99 budget they have at most half."""
    if load.usage > policy.usage:
        return Advice("break", 0.0, None, ("usage",))
    busy = load.usage >= policy.busy_usage
    budget_ms = policy.busy_p99_ms if busy else policy.idle_p99_ms
    share, reasons = 1.0, []
    if load.p99_ms is not None and load.p99_ms > budget_ms:
        share, reasons = 0.5, ["p99"]
    if busy and load.waiting:
        share, reasons = min(share, 1 / (1 + load.waiting)), [*reasons, "queue"]
    return Advice("back_off" if reasons else "none", share, budget_ms, tuple(reasons))


def spec(load: Load, preheating: bool, policy: BreakerPolicy) -> Advice:
    """What `policy.spec` says: the code, the table, or either of them, whichever is stricter."""
    code = should_break(load.usage, load.allocations_per_s, preheating, policy)
    by_code = Advice("break", 0.0, None, ("allocations",)) if code else Advice("none")
    if policy.spec == "code":
        return by_code
    by_table = band(load, policy)
    if policy.spec == "table":
        return by_table
    strictest = max(by_code, by_table, key=lambda advice: _SEVERITY[advice.action])
    return strictest._replace(
        share=min(by_code.share, by_table.share),
        p99_budget_ms=by_table.p99_budget_ms if strictest.action != "break" else None,
        reasons=tuple(sorted({*by_code.reasons, *by_table.reasons})),
    )
