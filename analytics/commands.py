"""From a draft of a warm-up to its command: budget, arm, id, life and memory, in one place for every kind of target."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct, field

from analytics.after import needs
from analytics.budget import Budget
from analytics.envelopes import Candidate, Root, Tag, seal
from analytics.experiments import ALWAYS, assign
from analytics.lending import Lending
from analytics.memory import TargetMemory
from analytics.policy import PolicyBook
from analytics.pools import envelope_key
from analytics.prefix_nodes import HASH_BYTES
from analytics.statements import TAKEN_AWAY
from analytics.worth import Worth
from schemas import Benefit, Cost, Prefix, Reason, Render, Replicas, Segment, Target, WarmupCommand, encode
from schemas.canonical import command_id
from schemas.request_event import Role
from schemas.warmup_command import Action, Lane, Qos

ROLES: tuple[Role, ...] = Role.__args__  # type: ignore[attr-defined]
"""Roles by the index that chains carry."""
BLOCK_ROLE = ROLES.index("block")
TOP_PRIORITY = 999
LEVELS_PER_HALF = 50
"""Levels of priority between a worth and half of it: 1.4 % more is another level, and a millionth is still one."""
NEVER_MS = 1 << 62
"""Later than all event times."""


class Allowance(NamedTuple):
    """What a scope may spend in a pool: its share of the pool's rate, and how much of it may be saved up.

    Attributes:
        share: of the pool's whole budget; 0 where it is not told.
    """

    rate_per_s: float
    burst: float
    share: float = 0.0


NO_ALLOWANCE = Allowance(0.0, 0.0)


class Offer(NamedTuple):
    """A warm-up that would be worth it, as little of it as ranking needs. Offers sort by rank, best first.

    Attributes:
        qos_rank, minus_density: guaranteed first, then by falling worth per unit of cost; names decide between equals.
        missing: replicas that lack it, or where it is renewed. attempt: number of its command.
    """

    qos_rank: int
    minus_density: float
    scope: str
    key: str
    missing: tuple[str, ...]
    attempt: int
    renews: bool = False


class Draft(Struct, frozen=True, gc=False):
    """An offer in full: everything that its command says.

    Attributes:
        source: candidate and root of a prefix, or the target itself.
        bucket, attempt: of the command's id.
        life_ms: from issue to expiry, scaled. repeat_ms: the bucket's length, scaled.
        names: replicas to warm; none where the executor chooses.
        charge: cost of one copy in the unit of the pool's budget.
        tokens, bytes: what a copy occupies.
        content_version: of what the target names; another version is another command.
        exempt: never held out: snapshots, probes, checks and what takes something back (D17).
    """

    scope: str
    key: str
    source: tuple[Candidate, Root] | Target
    unit: str
    bucket: int
    attempt: int
    life_ms: int
    repeat_ms: int
    names: tuple[str, ...]
    charge: float
    worth: Worth
    trigger: str
    qos: Qos
    tokens: int = 0
    bytes: int = 0
    evidence: dict[str, float] = field(default_factory=dict)
    action: Action = "warm"
    content_version: str = "1"
    exempt: bool = False

    @property
    def copies(self) -> int:
        """On how many replicas it is warmed."""
        return max(1, len(self.names))

    @property
    def of_traffic(self) -> bool:
        """Whether it is a prefix that requests showed, whose text its producer may withhold."""
        return isinstance(self.source, tuple)


class Paid(NamedTuple):
    """A draft that its scope has paid for, and the numbers of what it was paid from."""

    draft: Draft
    command_id: str
    evidence: Mapping[str, float]


def prefix_target(candidate: Candidate, root: Root) -> Prefix:
    """The target that a candidate stands for."""
    segments = tuple(
        Segment(candidate.hashes[HASH_BYTES * i : HASH_BYTES * (i + 1)].hex(), tokens, ROLES[candidate.roles[i]])
        for i, tokens in enumerate(candidate.tokens)
    )
    blocks = all(role == BLOCK_ROLE for role in candidate.roles)
    return Prefix(
        model=root.model,
        adapter=root.adapter or None,
        segments=segments,
        render=Render(root.template_sha, root.tools_sha, root.salt_ref or None),
        segment_kind="token_block" if blocks else "message",
    )


def command_key(pool: str, target_key: str) -> str:
    """Key of a command's record: pool and target, as its outcomes are keyed."""
    return envelope_key(f"{pool} {target_key}")


class Issuer:
    """Turns drafts of one pool into commands.

    The budget is asked before the arm is looked at, so that both arms are chosen alike; what a held-out command did
    not use comes back with its outcome.

    Args:
        lending: what the pool lends; None where debts are not bounded together.
    """

    def __init__(self, pool: str, memory: TargetMemory, budget: Budget, lending: Lending | None = None) -> None:
        self._pool = pool
        self._memory = memory
        self._budget = budget
        self._lending = lending

    def payable_ms(self, draft: Draft, allowance: Allowance, at_ms: int) -> int:
        """When a draft can go out at the earliest, if its scope pays nothing else; far away where it has no income."""
        if allowance.rate_per_s <= 0 or allowance.burst <= 0:
            return NEVER_MS
        if self._rests(draft, at_ms):
            return self._memory.rests.until_ms(draft.scope)
        held = self._budget.held(draft.scope, allowance.rate_per_s, allowance.burst, at_ms)
        cost = draft.charge * draft.copies
        full_ms = at_ms + max(0, int((min(cost, allowance.burst) - held) / allowance.rate_per_s * 1000))
        return max(full_ms, self._lends_ms(allowance, at_ms)) if cost > allowance.burst else full_ms

    def solvent_ms(self, scope: str, allowance: Allowance, at_ms: int, least: float) -> int:
        """When a scope can pay anything at all; far away where it has no income.

        That is from the end of its debt on; where even a full bucket does not pay `least`, also not before the pool
        lends again.
        """
        if allowance.rate_per_s <= 0 or allowance.burst <= 0:
            return NEVER_MS
        held = self._budget.held(scope, allowance.rate_per_s, allowance.burst, at_ms)
        free_ms = at_ms if held > 0 else at_ms + max(1, int(-held / allowance.rate_per_s * 1000))
        return max(free_ms, self._lends_ms(allowance, at_ms)) if allowance.burst < least else free_ms

    def lent_out(self, draft: Draft, allowance: Allowance, at_ms: int) -> bool:
        """Whether a draft was not paid because the pool lent its last at this very time."""
        owing = draft.charge * draft.copies > allowance.burst
        return owing and self._lending is not None and self._lending.emptied(at_ms)

    def pay(self, draft: Draft, at_ms: int, allowance: Allowance) -> Paid | None:
        """Pays for a draft, if its scope can, and remembers its command as live. What costs nothing is always paid.

        A scope none of whose texts is stored pays for no prefix of its traffic while it rests.
        """
        if self._rests(draft, at_ms):
            return None
        cost, evidence = draft.charge * draft.copies, {}
        if cost > 0:
            if cost > allowance.burst and self._lends_ms(allowance, at_ms) > at_ms:
                return None
            held = self._budget.held(draft.scope, allowance.rate_per_s, allowance.burst, at_ms)
            if not self._budget.pay(draft.scope, cost, allowance.rate_per_s, allowance.burst, at_ms):
                return None
            if cost > held and allowance.share and self._lending is not None:
                rate, burst = allowance.rate_per_s / allowance.share, allowance.burst / allowance.share
                self._lending.lend(cost - held, at_ms, rate, burst)
            evidence = {
                "budget_per_s": allowance.rate_per_s,
                "budget_share": allowance.share,
                "budget_left": self._budget.held(draft.scope, allowance.rate_per_s, allowance.burst, at_ms),
            }
        paid = Paid(draft, self._id(draft), evidence)
        self._memory.issued(
            draft.scope,
            draft.key,
            command_id=paid.command_id,
            bucket=draft.bucket,
            attempt=draft.attempt,
            at_ms=at_ms,
            expires_ms=at_ms + draft.life_ms,
            keep_ms=(draft.bucket + 2) * draft.repeat_ms,
            charged=draft.charge,
            names=draft.names,
        )
        if draft.of_traffic:
            self._memory.rests.issued(draft.scope, paid.command_id, at_ms + draft.life_ms)
        return paid

    def command(self, paid: Paid, at_ms: int, lane: Lane, priority: int, policy: PolicyBook) -> bytes:
        """The envelope of a paid draft's command; its evidence also tells what was paid from."""
        draft = paid.draft
        assignment = ALWAYS if draft.exempt else assign(draft.unit, at_ms, policy.experiment(draft.scope))
        worth = draft.worth
        target = prefix_target(*draft.source) if isinstance(draft.source, tuple) else draft.source
        command = WarmupCommand(
            command_id=paid.command_id,
            scope=draft.scope,
            tenant=draft.scope,
            pool=self._pool,
            target=target,
            target_key=draft.key,
            action=draft.action,
            # msgspec leaves a default out by identity: equal commands must have equal bytes.
            content_version=sys.intern(draft.content_version),
            replicas=Replicas(min=1, max=draft.copies, names=draft.names or None),
            priority=priority,
            qos=draft.qos,
            lane=lane,
            issued_at_ms=at_ms,
            not_before_ms=at_ms,
            expires_at_ms=at_ms + draft.life_ms,
            after=() if draft.action in TAKEN_AWAY else self._under_way(draft.scope, needs(target, draft.names), at_ms),
            cost=Cost(bytes=draft.bytes, tokens=draft.tokens, seconds=worth.saved_ms / 1000),
            benefit=Benefit(
                p_asked=worth.p_asked, p_absent=worth.p_absent, saved_ms=worth.saved_ms, reward=worth.reward
            ),
            reason=Reason(
                trigger=draft.trigger,
                evidence={
                    **draft.evidence,
                    **paid.evidence,
                    "worth_density": worth.density,
                    "attempt": float(draft.attempt),
                },
            ),
            policy_version=policy.version(draft.scope),
            unit=draft.unit,
            arm=assignment.arm,
            propensity=assignment.propensity,
            shadow=policy.plan(draft.scope).shadow,
        )
        return seal(Tag.COMMAND, command_key(self._pool, draft.key), encode(command))

    def _lends_ms(self, allowance: Allowance, at_ms: int) -> int:
        """When a scope with such an allowance can be lent to; now where the pool's whole budget is not told."""
        if self._lending is None or not allowance.share:
            return at_ms
        return self._lending.open_ms(at_ms, allowance.rate_per_s / allowance.share)

    def _rests(self, draft: Draft, at_ms: int) -> bool:
        return draft.of_traffic and self._memory.rests.until_ms(draft.scope) > at_ms

    def _under_way(self, scope: str, keys: Iterable[str], at_ms: int) -> tuple[str, ...]:
        """Live commands of a scope's targets."""
        targets = [self._memory.get(scope, key) for key in keys]
        return tuple(target.command_id for target in targets if target is not None and target.live(at_ms))

    def _id(self, draft: Draft) -> str:
        return command_id(
            draft.scope, self._pool, draft.key, draft.action, draft.content_version, draft.bucket, draft.attempt
        )


def priority_of(rank: int, among: int) -> int:
    """Priority by rank among what a tick issues: 999 for the first, evenly down to 0."""
    return TOP_PRIORITY - rank * (TOP_PRIORITY + 1) // max(1, among)


def priority_by_worth(draft: Draft) -> int:
    """Priority by worth, on one scale for all ticks and both lanes of a pool of replicas (D15).

    What prefill of a token earns, as a share of the most that it can: the uses that a copy may expect. One certain use
    is 999, and each half of it `LEVELS_PER_HALF` less.
    """
    worth = draft.worth
    uses = worth.p_asked * worth.p_absent * worth.reward / draft.copies
    return max(0, min(TOP_PRIORITY, TOP_PRIORITY + round(LEVELS_PER_HALF * math.log2(uses)))) if uses > 0 else 0
