"""Which offers of a tick are taken: by rank, as far as each scope's budget goes (the knapsack of D15, greedy)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from analytics.commands import Allowance, Draft, Issuer, Offer, Paid

LEFT_OUT_EACH, LEFT_OUT = 3, 16
"""How many of the offers that a tick leaves out are told, of a scope and of all."""


@dataclass(frozen=True)
class LeftOut:
    """An offer that its scope could not pay beside what it got; `rank` orders offers, more is sooner."""

    draft: Draft
    rank: float


@dataclass
class Choice:
    """What a tick takes.

    Attributes:
        paid: best first.
        left_out: the best of what scopes could not pay beside what they got, a few of each.
        waiting: scopes that got nothing because their best offer costs too much now, and when they can pay it.
    """

    paid: list[Paid] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    waiting: dict[str, int] = field(default_factory=dict)


def choose(
    offers: Iterable[Offer],
    at_ms: int,
    issuer: Issuer,
    draft_of: Callable[[Offer], Draft],
    allowance_of: Callable[[str], Allowance],
    limit: int,
    closed: set[str] | None = None,
) -> Choice:
    """Takes offers by rank and pays for them.

    A scope that cannot pay its best offer saves for it: a lesser one must not eat what the better one waits for. Once
    the pool has lent its last, the first offer that would need a loan ends the tick: behind it may be many like it.

    Args:
        offers: best first.
        draft_of: an offer in full; only asked for what may be taken.
        allowance_of: what a scope may spend.
        limit: how many are taken at most.
        closed: gets the scopes that save, so that a lazy source need not look at what else they have.
    """
    choice = Choice()
    allowances: dict[str, Allowance] = {}
    saving: dict[str, Draft] = {}
    closed = set() if closed is None else closed
    served: set[str] = set()
    told: dict[str, int] = {}
    for offer in offers:
        scope = offer.scope
        if scope in closed:
            continue
        if scope in saving:
            _tell(choice, offer, draft_of(offer), told, closed)
            continue
        if len(choice.paid) == limit:
            break
        if scope not in allowances:
            allowances[scope] = allowance_of(scope)
        draft = draft_of(offer)
        paid = issuer.pay(draft, at_ms, allowances[scope])
        if paid is not None:
            choice.paid.append(paid)
            served.add(scope)
            continue
        saving[scope] = draft
        if issuer.lent_out(draft, allowances[scope], at_ms):
            break
        if scope in served:
            _tell(choice, offer, draft, told, closed)
        else:
            closed.add(scope)
    for scope, draft in saving.items():
        if scope not in served:
            choice.waiting[scope] = issuer.payable_ms(draft, allowances[scope], at_ms)
    return choice


def _tell(choice: Choice, offer: Offer, draft: Draft, told: dict[str, int], closed: set[str]) -> None:
    """Notes an offer that was left out, unless there are enough of its scope or of all."""
    if len(choice.left_out) < LEFT_OUT:
        choice.left_out.append(LeftOut(draft, -offer.minus_density))
        told[offer.scope] = told.get(offer.scope, 0) + 1
    if len(choice.left_out) == LEFT_OUT or told.get(offer.scope) == LEFT_OUT_EACH:
        closed.add(offer.scope)
