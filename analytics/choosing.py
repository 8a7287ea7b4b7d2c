"""Which offers of a tick are taken: by rank, as far as each scope's budget goes (the knapsack of D15, greedy)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from analytics.commands import Allowance, Draft, Issuer, Offer


@dataclass
class Choice:
    """What a tick takes.

    Attributes:
        drafts: paid, best first.
        waiting: scopes that got nothing because their best offer costs too much now, and when they can pay it.
    """

    drafts: list[Draft] = field(default_factory=list)
    waiting: dict[str, int] = field(default_factory=dict)


def choose(
    offers: Iterable[Offer],
    at_ms: int,
    issuer: Issuer,
    draft_of: Callable[[Offer], Draft],
    allowance_of: Callable[[str], Allowance],
    limit: int,
) -> Choice:
    """Takes offers by rank and pays for them.

    A scope that cannot pay its best offer saves for it: a lesser one must not eat what the better one waits for.

    Args:
        draft_of: an offer in full; only asked for what may be taken.
        allowance_of: what a scope may spend.
        limit: how many are taken at most.
    """
    choice = Choice()
    allowances: dict[str, Allowance] = {}
    saving: dict[str, Draft] = {}
    for offer in sorted(offers):
        scope = offer.scope
        if scope in saving:
            continue
        if len(choice.drafts) == limit:
            break
        if scope not in allowances:
            allowances[scope] = allowance_of(scope)
        draft = draft_of(offer)
        if issuer.pay(draft, at_ms, allowances[scope]):
            choice.drafts.append(draft)
        else:
            saving[scope] = draft
    served = {draft.scope for draft in choice.drafts}
    for scope, draft in saving.items():
        if scope not in served:
            choice.waiting[scope] = issuer.payable_ms(draft, allowances[scope], at_ms)
    return choice
