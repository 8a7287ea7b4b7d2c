"""Candidates from clusters: members of a massive or growing group of like queries that are embedded but not resident.

A group says more than its members: what many ask for in like words will be asked for again, in one of these words. Its
members go through the budgets, repeat intervals and residency of every embedding. The unit of the hold-out is the
medoid, with one exception: a query whose own unit is held out stays in that unit, because whatever else warmed it would
spoil the comparison that it stands in.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec
from msgspec import structs

from analytics.clustered import Clustered, LiveCluster
from analytics.commands import Draft, Offer
from analytics.embedding_planning import EmbeddingPlanner
from analytics.experiments import assign
from analytics.plan_config import PlanConfig
from analytics.policy import PolicyBook
from analytics.records import Section, path

TRIGGER_CLUSTER = "cluster"

Place = tuple[str, str]
"""Scope and target key of an offer."""


class _Member(NamedTuple):
    """A query of a group."""

    query: str
    cluster: LiveCluster


class ClusterPlanner:
    """The groups of every scope, and which of their members are worth an entry of the embedding cache."""

    def __init__(self, config: PlanConfig, embeddings: EmbeddingPlanner, store: Section) -> None:
        self._config = config
        self._embeddings = embeddings
        self._store = store
        self._told: dict[str, Clustered] = {}
        self._alike: dict[str, dict[str, tuple[str, ...]]] = {}
        self._offered: dict[Place, _Member] = {}

    def __bool__(self) -> bool:
        return bool(self._told)

    def on_clustered(self, body: bytes) -> int:
        """Replaces a scope's groups; returns the event time of the message."""
        told = msgspec.msgpack.decode(body, type=Clustered)
        held = self._told.get(told.scope)
        if held is not None and told.at_ms < held.at_ms:
            return told.at_ms
        self._alike.pop(told.scope, None)
        if told.clusters:
            self._told[told.scope] = told
            self._store.put(path(told.scope), body)
        elif held is not None:
            self._drop(told.scope)
        return told.at_ms

    def alike(self, scope: str, query: str) -> tuple[str, ...]:
        """The members of a query's group, itself among them; nothing where it is in none."""
        if scope not in self._alike:
            groups = self._told[scope].clusters if scope in self._told else ()
            self._alike[scope] = {member: group.members for group in groups for member in group.members}
        return self._alike[scope].get(query, ())

    def expire(self, at_ms: int) -> None:
        """Drops the groups that nobody stands for any more."""
        for scope in [scope for scope, told in self._told.items() if told.until_ms <= at_ms]:
            self._drop(scope)

    def review(self, at_ms: int, policy: PolicyBook, others: list[Offer]) -> list[Offer]:
        """Offers for the members of massive and growing groups.

        Args:
            others: what is offered already, for a reason of its own.
        """
        taken = {(offer.scope, offer.key) for offer in others}
        self._offered = {}
        offers = []
        for scope, told in sorted(self._told.items()):
            plan = policy.plan(scope)
            if not plan.clusters or policy.frozen(scope):
                continue
            for group in told.clusters:
                massive = group.mass >= plan.cluster_mass
                growing = group.mass >= plan.cluster_growing_mass and group.growth >= plan.cluster_growth
                if not (massive or growing):
                    continue
                density = self._p_asked(group)
                for query in group.members:
                    offer = self._embeddings.offer(scope, query, at_ms, policy, density)
                    if offer is not None and (scope, offer.key) not in taken:
                        taken.add((scope, offer.key))
                        self._offered[scope, offer.key] = _Member(query, group)
                        offers.append(offer)
        return offers

    def draft(self, offer: Offer, at_ms: int, policy: PolicyBook) -> Draft | None:
        """An offer of the last `review` in full; None where it was not one of these."""
        member = self._offered.get((offer.scope, offer.key))
        if member is None:
            return None
        group = member.cluster
        draft = self._embeddings.draft_for(offer, at_ms, TRIGGER_CLUSTER, policy)
        own = assign(draft.unit, at_ms, policy.experiment(offer.scope))
        p_asked = max(draft.worth.p_asked, self._p_asked(group))
        return structs.replace(
            draft,
            unit=draft.unit if own.arm == "hold" else group.members[0],
            worth=structs.replace(draft.worth, p_asked=p_asked),
            evidence={
                **draft.evidence,
                "mass": group.mass,
                "growth": group.growth,
                "size": float(group.size),
                "cluster_rate_per_s": group.rate_per_s,
            },
        )

    def restore(self, blob: bytes) -> None:
        """Takes back one scope's groups."""
        told = msgspec.msgpack.decode(blob, type=Clustered)
        self._told[told.scope] = told

    def _p_asked(self, group: LiveCluster) -> float:
        """How likely a member is asked for within the horizon, if all members are alike."""
        rate_per_s = group.rate_per_s / max(1, group.size)
        return -math.expm1(-rate_per_s * self._config.scaled(self._config.horizon_ms) / 1000)

    def _drop(self, scope: str) -> None:
        del self._told[scope]
        self._alike.pop(scope, None)
        self._store.remove(path(scope))
