"""The place for a rule of your own: a class that says what a warm-up is worth, in place of the built-in rank.

At every tick a planner collects what is worth a warm-up now and takes the best of it as far as the budget goes. An own
policy is asked once about each of these and answers with a number: more is sooner, 0 or less leaves it out. Everything
else stays as it is: quotas, budgets, hold-out, lives, and that one target has one live command. What does not wait for
a tick (a second sight, a lost prefix, a withdrawal, a change that was announced) is not asked about.

docs/policies.md shows one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from msgspec.structs import replace

from analytics.worth import Worth

if TYPE_CHECKING:
    from analytics.commands import Draft, Offer


@dataclass(frozen=True)
class Proposal:
    """A warm-up that the planner would take by its own rule.

    Attributes:
        at_ms: event time; there is no other clock.
        pool, scope: where and for whom.
        target_key: what is warmed; its kind is what stands before the first colon.
        trigger: why it is proposed, such as `hot_prefix`.
        density: the planner's own rank: more is sooner. Only compare it within a pool.
        worth: p_asked, p_absent, saved_ms, reward, and cost in the unit of the pool's budget.
        tokens, bytes: what one copy occupies. copies: on how many replicas it is warmed.
        evidence: the numbers that the command's reason will show.
    """

    at_ms: int
    pool: str
    scope: str
    target_key: str
    trigger: str
    density: float
    worth: Worth
    tokens: int
    bytes: int
    copies: int
    evidence: Mapping[str, float]

    @property
    def kind(self) -> str:
        """Kind of the target: prefix, embedding, response."""
        return self.target_key.partition(":")[0]


@runtime_checkable
class OwnPolicy(Protocol):
    """What an own policy must be: made without arguments, without state, clock or chance.

    A job that crashed asks again about the same proposals and must get the same answers.
    """

    def density(self, proposal: Proposal) -> float:
        """How much a warm-up is worth beside the others of its pool; 0 or less: it is left out."""


DraftOf = Callable[["Offer"], "Draft"]


def ranked(
    own: OwnPolicy | None, pool: str, at_ms: int, offers: Iterable[Offer], draft_of: DraftOf
) -> tuple[Iterable[Offer], DraftOf, dict[str, float]]:
    """Offers as an own policy ranks them; without one all stays as it is.

    A policy that raises, or answers with something else than a finite number, leaves the offer its built-in rank: a
    mistake in it must not end the warm-up of everybody.

    Returns:
        what is left of the offers, best first; their drafts, with the answer in the evidence; and what a report says of
        the policy.
    """
    if own is None:
        return offers, draft_of, {}
    drafts: dict[Offer, Draft] = {}
    faults = left_out = 0
    for offer in offers:
        draft = draft_of(offer)
        density = _asked(own, pool, at_ms, offer, draft)
        if density is None:
            faults += 1
            density = -offer.minus_density
        if density > 0:
            mine = offer._replace(minus_density=-density)
            drafts[mine] = replace(draft, evidence={**draft.evidence, "own_density": density})
        else:
            left_out += 1
    return sorted(drafts), drafts.__getitem__, {"own_left_out": float(left_out), "own_faults": float(faults)}


def _asked(own: OwnPolicy, pool: str, at_ms: int, offer: Offer, draft: Draft) -> float | None:
    """The policy's answer; None where it is no finite number."""
    proposal = Proposal(
        at_ms,
        pool,
        offer.scope,
        offer.key,
        draft.trigger,
        -offer.minus_density,
        draft.worth,
        draft.tokens,
        draft.bytes,
        draft.copies,
        draft.evidence,
    )
    try:
        density = float(own.density(proposal))
    except Exception:  # whatever the deployment's own code raises
        return None
    return density if math.isfinite(density) else None
