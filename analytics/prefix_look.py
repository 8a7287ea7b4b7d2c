"""A look at one hot prefix: whether it is worth a warm-up now, and until when another look would find the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from analytics.commands import NEVER_MS, Offer
from analytics.envelopes import Candidate, Root
from analytics.memory import TargetMemory
from analytics.plan_config import PlanConfig
from analytics.policy import BudgetPolicy, PlanPolicy
from analytics.prefix_places import places
from analytics.prefix_renewal import Held, Renewal, renewal_of, used_ms
from analytics.replicas import Ready
from analytics.targets import Target
from analytics.worth import kept_of_displaced, p_absent, p_absent_by_age, p_absent_prior
from schemas.canonical import bucket
from schemas.warmup_command import QOS_RANK

Ended = Callable[[str, Root, int], int]
"""Of a scope, a root and a time: what was asked for before which event time is over; 0 where nothing is."""
Floats = npt.NDArray[np.float64]
Times = npt.NDArray[np.int64]

FREE_MS, UNKNOWN_MS = 0, -1
"""In `Columns.free_ms`: nothing that is remembered is against a command; nobody has looked since something changed."""
NO_RENEWAL = Renewal((), 0.0, NEVER_MS)


class Hot(Struct, frozen=True, gc=False):
    """A candidate, and what every look at it needs; `place` is its own among the hot prefixes of its scope."""

    candidate: Candidate
    root: Root
    tokens: int
    place: int


class Columns(NamedTuple):
    """The hot prefixes of a scope, side by side: key, root, rate a second, chance of being asked for, tokens, last use.

    `free_ms` notes when what is remembered of each lets it be commanded: a time, `FREE_MS` or `UNKNOWN_MS`. A note
    holds until its time comes, something else is remembered, or replicas or policy change.
    """

    keys: tuple[str, ...]
    roots: tuple[Root, ...]
    rates: Floats
    p_asked: Floats
    tokens: Floats
    last_ms: Times
    free_ms: Times

    @classmethod
    def of(cls, hot: Mapping[str, Hot]) -> Columns:
        """Those by target key."""
        candidates = [each.candidate for each in hot.values()]
        return cls(
            tuple(hot),
            tuple([each.root for each in hot.values()]),
            np.array([each.rate_per_s for each in candidates], dtype=np.float64),
            np.array([each.p_asked for each in candidates], dtype=np.float64),
            np.array([each.tokens for each in hot.values()], dtype=np.float64),
            np.array([each.last_ms for each in candidates], dtype=np.int64),
            np.full(len(hot), FREE_MS, dtype=np.int64),
        )


class PoolNow(NamedTuple):
    """What every look of a tick needs: its time, the replicas, and how long one of them prefills a token.

    Attributes:
        margin_per_s: at which rate that is asked for which replicas let go of next, where what is resident is renewed;
            None where it is not.
        horizon_ms: how far ahead the chance of being asked for looks, scaled.
    """

    at_ms: int
    ready: Ready
    ms_per_token: float
    margin_per_s: float | None = None
    horizon_ms: float = 0.0

    @property
    def alone(self) -> bool:
        """Whether it is known of one replica when it used what, since all requests meet it."""
        return self.margin_per_s is not None and len(self.ready.names) == 1


@dataclass(frozen=True, slots=True)
class Terms:
    """What a scope's policy means at a tick.

    Attributes:
        soon_ms: what is not resident by then may be warmed. bucket, repeat_ms: of commands.
        stay_ms: how long a replica keeps what nobody asks for. min_saved_ms: scaled.
        warms, renews: whether the scope can pay for what is absent, and for what is resident.
    """

    qos_rank: int
    copies: int
    soon_ms: int
    bucket: int
    repeat_ms: int
    stay_ms: float
    min_saved_ms: float
    warms: bool = True
    renews: bool = True


def terms_of(plan: PlanPolicy, at_ms: int, config: PlanConfig, stay_ms: float | None) -> Terms:
    """What a policy means at a time.

    Args:
        stay_ms: how long replicas keep what nobody asks for; None where only the policy says something.
    """
    repeat_ms = config.scaled(plan.prefix_repeat_ms)
    return Terms(
        QOS_RANK[plan.qos],
        plan.copies,
        at_ms + config.scaled(plan.lead_ms),
        bucket(at_ms, repeat_ms),
        repeat_ms,
        stay_of(plan, config, stay_ms),
        plan.min_saved_ms / config.time_scale,
    )


def now_of(at_ms: int, ready: Ready, budget: BudgetPolicy, config: PlanConfig, margin_per_s: float | None) -> PoolNow:
    """What holds for every look at a time; `margin_per_s` as in `PoolNow`."""
    ms_per_token = 1000 / prefill_per_s(budget, config)
    return PoolNow(at_ms, ready, ms_per_token, margin_per_s, config.scaled(config.horizon_ms))


def stay_of(plan: PlanPolicy, config: PlanConfig, stay_ms: float | None) -> float:
    """How long a replica keeps what nobody asks for: as found, or where nothing was as policy says; scaled."""
    return config.scaled(plan.prefix_resident_ms) if stay_ms is None else stay_ms


def prefill_per_s(budget: BudgetPolicy, config: PlanConfig) -> float:
    """Tokens that a replica prefills in a second of event time."""
    return budget.prefill_tokens_per_s * config.time_scale


def free_at(target: Target, missing: int, terms: Terms, ready: Ready, at_ms: int) -> tuple[int, int]:
    """When a target may be commanded at the earliest, as things stand; now where nothing is against it.

    Args:
        missing: how many of the replicas will lack it soon.
        ready: replicas of which it fills a block.

    Returns:
        that, and when the first residency that lasts beyond the lead comes within it; far away where there is none.
    """
    held = len(ready.names) - missing
    lapse_ms = target.first_lapse(ready, terms.soon_ms) - terms.soon_ms + at_ms if held else NEVER_MS
    free_ms = lapse_ms if not missing or held >= terms.copies else at_ms
    if target.bucket >= terms.bucket:
        free_ms = max(free_ms, (target.bucket + 1) * terms.repeat_ms)
    if target.live(at_ms):
        free_ms = max(free_ms, target.expires_ms)
    return free_ms, lapse_ms


def look_at(
    scope: str, columns: Columns, place: int, terms: Terms, pool: PoolNow, memory: TargetMemory
) -> tuple[Offer | None, int]:
    """Looks at one hot prefix, and notes when it may be commanded as far as that is remembered.

    Each copy earns its marginal worth: a request meets one replica, so a copy saves what the replica's share of the
    requests would miss there. A replica where it may not be warmed does not hold it, and requests meet it all the same.

    Returns:
        the offer, unless the prefix is live, resident or not worth it; and when a later look may find something else.
    """
    key, tokens = columns.keys[place], float(columns.tokens[place])
    target = memory.get(scope, key)
    ready = places(pool.ready, tokens, scope, columns.roots[place].adapter, memory, pool.at_ms)
    missing, attempt, lapse_ms = ready.names, 1, NEVER_MS
    columns.free_ms[place] = FREE_MS
    if not missing:
        return None, lapse_ms
    renewal = _renewal(columns, place, terms, pool, ready, target)
    if pool.margin_per_s is not None and target is not None:
        columns.free_ms[place] = UNKNOWN_MS  # what is remembered may be renewed
    if renewal.names:
        attempt = 1 if target is None else target.next_attempt(terms.bucket, pool.at_ms)
        density = renewal.p_kept * pool.ms_per_token * tokens / pool.ready.block_tokens
        return Offer(terms.qos_rank, -density, scope, key, renewal.names, attempt, renews=True), pool.at_ms
    replicas, wanted = len(pool.ready.names), min(len(missing), terms.copies)
    if target is not None:
        missing = target.missing(ready, terms.soon_ms)
        free_ms, lapse_ms = free_at(target, len(missing), terms, ready, pool.at_ms)
        if not target.live(pool.at_ms):
            free_ms, lapse_ms = min(free_ms, renewal.due_ms), min(lapse_ms, renewal.due_ms)
        if free_ms > pool.at_ms:
            columns.free_ms[place] = free_ms
            return None, free_ms
        attempt = target.next_attempt(terms.bucket, pool.at_ms)
        wanted = min(len(missing), terms.copies - (len(ready.names) - len(missing)))
    if not terms.warms:
        return None, lapse_ms
    rate, p_asked = float(columns.rates[place]), float(columns.p_asked[place])
    prior = prior_of(rate, int(columns.last_ms[place]), terms.stay_ms, pool, target)
    absent = p_absent(replicas - wanted, wanted, prior)
    saved_ms = p_asked * absent * pool.ms_per_token
    if pool.margin_per_s is not None:
        saved_ms *= kept_of_displaced(rate / replicas, pool.margin_per_s)
    if not saved_ms or saved_ms * tokens < terms.min_saved_ms:
        return None, lapse_ms
    return Offer(terms.qos_rank, -saved_ms / wanted, scope, key, missing, attempt), lapse_ms


def prior_of(rate_per_s: float, last_ms: int, stay_ms: float, pool: PoolNow, target: Target | None) -> float:
    """Chance that a replica lacks a prefix of which nobody told that it is there.

    A replica that is alone used it when it was asked for last: before its stay has passed it is there.
    """
    if not pool.alone:
        return p_absent_prior(rate_per_s, len(pool.ready.names), stay_ms)
    since_ms = used_ms(target, pool.ready.names[0], pool.ready.marks[0], last_ms, alone=True)
    age_ms = pool.at_ms - since_ms
    if not since_ms:
        return 1.0
    return p_absent_by_age(age_ms, stay_ms) if age_ms >= stay_ms else 0.0


def _renewal(columns: Columns, place: int, terms: Terms, pool: PoolNow, ready: Ready, target: Target | None) -> Renewal:
    """Where it is worth to renew one; nowhere while its command is out or it rests."""
    idle = target is None or not (target.live(pool.at_ms) or target.rests_until_ms > pool.at_ms)
    if pool.margin_per_s is None or not terms.renews or not idle:
        return NO_RENEWAL
    held = Held(
        float(columns.rates[place]),
        int(columns.last_ms[place]),
        terms.stay_ms,
        pool.horizon_ms,
        pool.margin_per_s,
        terms.min_saved_ms / (float(columns.tokens[place]) * pool.ms_per_token),
    )
    return renewal_of(held, target, ready, len(pool.ready.names), pool.at_ms)
