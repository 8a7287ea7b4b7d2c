"""Sessions in a GPU pool's plan: where prompts resemble each other their prefix is warmed at once (D10).

Its priority is by worth, as that of hot prefixes is, or by the spec's formula. What requests are like is grouped over
all sessions of a scope, and told once a slide; it warms nothing.
"""

from __future__ import annotations

import math

from analytics.commands import Draft, priority_by_worth
from analytics.copies import spread
from analytics.envelopes import Candidate, Tag, seal
from analytics.memory import TargetMemory
from analytics.patterns import CONSECUTIVE, Priority, pattern_state, prefill_priority
from analytics.plan_config import PlanConfig
from analytics.policy import PolicyBook
from analytics.pools import envelope_key
from analytics.prefix_nodes import HASH_BYTES
from analytics.prefix_places import places
from analytics.prefix_planning import PrefixPlanner
from analytics.recent_scopes import RecentScopes
from analytics.records import Section
from analytics.replicas import Ready
from analytics.request_features import SessionFeatures
from analytics.request_groups import RequestGroups
from analytics.stay_time import StayTime
from analytics.stores import MapStore
from analytics.turns import SessionPattern
from analytics.worth import Worth, p_absent, p_absent_prior
from schemas import Pattern, encode
from schemas.canonical import bucket, prefix_key
from schemas.warmup_command import Qos

TRIGGER = "consecutive_prompts"
GROUP_LIFE_MS = 300_000
"""Mean time that a request counts for in its group. Scaled."""
SUBJECT_CHARS = 200
"""Of a model's name in a group's."""


class PatternPlanner:
    """Patterns of every scope in one pool. A scope that had one lately has its share of the pool's prefill.

    Args:
        stay: how long replicas keep what nobody asks for.
        store: its records begin with `h` (scopes that had a pattern) and `g` (groups of requests).
    """

    def __init__(
        self,
        config: PlanConfig,
        pool: str,
        memory: TargetMemory,
        prefixes: PrefixPlanner,
        stay: StayTime,
        store: MapStore,
    ) -> None:
        self._config = config
        self._pool = pool
        self._memory = memory
        self._prefixes = prefixes
        self._stay = stay
        self._recent = RecentScopes(config.scaled(config.candidates_life_ms), Section(store, "h"))
        self._groups = RequestGroups(config.scaled(GROUP_LIFE_MS), Section(store, "g"))

    def __bool__(self) -> bool:
        return bool(self._recent or self._groups)

    @property
    def scopes(self) -> frozenset[str]:
        """Scopes that had a pattern lately."""
        return self._recent.names

    def on_pattern(self, found: SessionPattern) -> None:
        """Remembers that a scope has patterns."""
        self._recent.heard(found.scope, found.at_ms)

    def on_features(self, told: SessionFeatures) -> None:
        """Puts a session's last prompts into the group that they are like."""
        self._groups.add(told.scope, told.features, told.at_ms)

    def forget(self, at_ms: int) -> None:
        """Drops scopes without a pattern for so long as a hot prefix is kept, and groups that have faded."""
        self._recent.forget(at_ms)
        self._groups.forget(at_ms)

    def restore(self, blob: bytes) -> None:
        """Takes back one scope."""
        self._recent.restore(blob)

    def restore_group(self, blob: bytes) -> None:
        """Takes back one group."""
        self._groups.restore(blob)

    def group_insights(self, at_ms: int) -> list[bytes]:
        """INSIGHT envelopes of the groups of requests that a slide ends with."""
        out = []
        for group in self._groups.told(at_ms):
            subject = f"{group.version[:SUBJECT_CHARS]}#{group.number}"
            qps = group.requests * 1000 / self._config.scaled(GROUP_LIFE_MS)
            insight = Pattern(
                scope=group.scope,
                pool=self._pool,
                pattern="request_group",
                subject=subject,
                at_ms=at_ms,
                priority=prefill_priority(subject, qps).raw,
                state=pattern_state(group.known, ()).state,
                evidence={"requests": group.requests, "share": group.share, "qps": qps, **group.evidence},
            )
            out.append(seal(Tag.INSIGHT, envelope_key(group.scope), encode(insight)))
        return out

    def insight(self, found: SessionPattern) -> bytes:
        """What everyone is told of a pattern, in the JSON of its topic."""
        return encode(
            Pattern(
                scope=found.scope,
                pool=found.pool,
                pattern="consecutive_prompts",
                subject=found.subject,
                at_ms=found.at_ms,
                priority=_spec_priority(found).raw,
                state=pattern_state(found.known, ()).state,
                evidence={
                    "similarity": found.similarity,
                    "qps": found.qps,
                    "prefix_tokens": float(sum(found.tokens)),
                },
            )
        )

    def draft(self, found: SessionPattern, at_ms: int, ready: Ready, policy: PolicyBook) -> Draft | None:
        """A draft for the session's prefix; None where it may not, need not or cannot be warmed."""
        scope, plan, config = found.scope, policy.plan(found.scope), self._config
        tokens = sum(found.tokens)
        if not policy.pattern(scope).enabled or not plan.prefixes or policy.frozen(scope):
            return None
        fitting = places(ready, tokens, scope, found.root.adapter, self._memory, at_ms)
        if not fitting.names:
            return None
        key = prefix_key(found.hashes[-HASH_BYTES:].hex())
        repeat_ms = config.scaled(plan.prefix_repeat_ms)
        target, now, attempt = self._memory.get(scope, key), bucket(at_ms, repeat_ms), 1
        if target is not None:
            if target.live(at_ms) or target.bucket >= now or target.rests_until_ms > at_ms:
                return None
            attempt = target.next_attempt(now, at_ms)
        missing = self._missing(found, at_ms + config.scaled(plan.lead_ms), fitting)
        names = spread(tuple(missing), plan.copies, key, ready.zone_of, fitting.but(missing))
        if not names:
            return None
        charge = sum(missing[name] for name in names) / len(names)
        unit = self._prefixes.family_of(scope, found.root, found.hashes)
        p_asked = -math.expm1(-found.qps * config.scaled(config.horizon_ms) / 1000)
        replicas = len(ready.names)
        stay_ms = config.scaled(plan.prefix_resident_ms) if self._stay.ms is None else self._stay.ms
        # A new pattern has been asked for just as often as makes one.
        asked_ms = stay_ms if found.known else min(stay_ms, CONSECUTIVE * 1000 / found.qps)
        absent = p_absent(replicas - len(names), len(names), p_absent_prior(found.qps, replicas, asked_ms))
        candidate = Candidate(0, found.hashes, found.tokens, found.roles, unit, found.qps, p_asked, 1.0, found.at_ms)
        prefill_per_s = policy.budget().prefill_tokens_per_s * config.time_scale
        qos: Qos = plan.qos  # type: ignore[assignment]
        return Draft(
            scope=scope,
            key=key,
            source=(candidate, found.root),
            unit=unit,
            bucket=now,
            attempt=attempt,
            life_ms=config.life_ms(plan.prefix_life_ms),
            repeat_ms=repeat_ms,
            names=names,
            charge=charge,
            worth=Worth(p_asked, absent, charge / prefill_per_s * 1000, charge * len(names)),
            trigger=TRIGGER,
            qos=qos,
            tokens=tokens,
            evidence={
                "state": float(pattern_state(found.known, ()).state),
                "priority_raw": float(_spec_priority(found).raw),
                "qps": found.qps,
                "similarity": found.similarity,
                "tokens_missing": charge,
                "replicas_ready": float(replicas),
                **self._stay.evidence(float(stay_ms)),
            },
        )

    def priority(self, found: SessionPattern, draft: Draft, policy: PolicyBook) -> int:
        """Of the command that a draft of a pattern becomes."""
        if policy.pattern(found.scope).rule == "spec":
            return _spec_priority(found).command
        return priority_by_worth(draft)

    def _missing(self, found: SessionPattern, soon_ms: int, ready: Ready) -> dict[str, int]:
        """Tokens to warm on each replica that needs any: all of a new pattern's, a known one's missing segments'."""
        segments = len(found.tokens)
        held = dict.fromkeys(ready.names, 0)
        for count in range(1, segments + 1) if found.known else ():
            target = self._memory.get(found.scope, prefix_key(_hash(found, count - 1)))
            if target is not None:
                for name, mark in zip(ready.names, ready.marks, strict=True):
                    if target.resident_until(name, mark) > soon_ms:
                        held[name] = count
        needed = {}
        for name, count in held.items():
            # A resident prefix holds all that leads to it.
            wanted = pattern_state(found.known, [index < count for index in range(segments)]).segments
            if wanted:
                needed[name] = sum(found.tokens[index] for index in wanted)
        return needed


def _spec_priority(found: SessionPattern) -> Priority:
    """What is fingerprinted is the prefix, or the session where its prompts share none."""
    fingerprint = found.hashes[-HASH_BYTES:].hex() if found.hashes else found.subject
    return prefill_priority(fingerprint, found.qps)


def _hash(found: SessionPattern, index: int) -> str:
    return found.hashes[index * HASH_BYTES : (index + 1) * HASH_BYTES].hex()
