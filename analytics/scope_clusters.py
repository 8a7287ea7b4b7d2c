"""The clusters of one scope over time: the last queries with a vector, grouped once a stride (D5).

Vectors come once a query, from the embed operator; how often each is asked for comes with the totals of the demand
shards. At a stride the window is clustered, groups take over the ids of the groups that they go on with, and each that
somebody asks for is published with its medoid, mass, growth and members.

Everything is in the store before a call returns. Sections: a assignments, c counts, l last asked, t timer, v vectors.
"""

from __future__ import annotations

from typing import NamedTuple

from analytics.cluster_config import ClusterConfig
from analytics.cluster_identity import continued, new_id
from analytics.clustered import Clustered, LiveCluster, QueryVector
from analytics.clustering import Clustering
from analytics.envelopes import Partial, Tag, seal
from analytics.pools import envelope_key
from analytics.query_counts import QueryCounts
from analytics.records import Record, Section, pack, unpack
from analytics.scope_groups import grouping
from analytics.stores import MapStore
from analytics.vector_ring import VectorRing
from schemas import Cluster, encode


class AssignmentRecord(Record, frozen=True, array_like=True):
    """A group of the last stride."""

    cluster_id: str
    born_ms: int
    mass: float
    members: tuple[str, ...]


class TimerRecord(Record, frozen=True, array_like=True):
    """Where a scope stands."""

    scope: str
    last_timer_ms: int
    next_timer_ms: int | None
    published: bool


class _Found(NamedTuple):
    """A group of this stride with its name."""

    record: AssignmentRecord
    medoid: str
    growth: float


class ScopeClusters:
    """The clusters of one scope.

    Args:
        config: settings.
        store: where vectors, counts and assignments survive. Whatever it holds is restored here.
    """

    def __init__(self, config: ClusterConfig, store: MapStore) -> None:
        self._config = config
        self._store = store
        self._ring = VectorRing(config.queries, Section(store, "v"), Section(store, "l"))
        self._grouping = grouping(config)
        self._counts = QueryCounts(config.max_places, Section(store, "c"))
        self._before: dict[str, AssignmentRecord] = {}
        self._scope = ""
        self._last_timer_ms = 0
        self._next_timer_ms: int | None = None
        self._published = False
        self._restore()

    @property
    def next_timer_ms(self) -> int | None:
        """Event time of the stride to be woken at; None while nothing is held."""
        return self._next_timer_ms

    @property
    def blank(self) -> bool:
        """Whether it holds nothing: a new one over the same store is the same, so this one need not be kept."""
        return self._next_timer_ms is None and not len(self._ring) and not self._counts

    def on_vector(self, vector: QueryVector) -> None:
        """Takes the vector of a query that was embedded."""
        self._ring.add(vector, self._counts.last_ms)
        self._wake(vector.scope, vector.at_ms)

    def on_counts(self, partial: Partial) -> None:
        """Takes the totals of queries of a pane and shard."""
        if partial.pane_start_ms < self._last_timer_ms - self._config.scaled_mass_ms:
            return
        if self._counts.add(partial, self._ring.__contains__):
            self._wake(partial.scope, partial.pane_start_ms)

    def on_timer(self, at_ms: int) -> list[bytes]:
        """A stride: finds the groups of now.

        Returns:
            a Cluster insight for each group that is asked for, and one CLUSTERED envelope with all of them for the
            planner; where there were some and are none any more it says so once. A timer that is no longer wanted
            does nothing.
        """
        if self._next_timer_ms is None or at_ms < self._next_timer_ms:
            return []
        config = self._config
        self._ring.asked(self._counts.last_ms())
        self._counts.forget(at_ms - config.scaled_mass_ms)
        self._ring.forget(at_ms - config.scaled_max_age_ms)
        out = self._stride(at_ms)
        self._last_timer_ms = at_ms
        self._next_timer_ms = self._due(at_ms)
        if self.blank:
            self._last_timer_ms = 0
            self._store.remove("t")
        else:
            self._write()
        return out

    def _stride(self, at_ms: int) -> list[bytes]:
        queries = self._ring.queries()
        weights = self._weights(queries, at_ms)
        fingerprint = self._ring.fingerprint
        eps = self._config.eps_of(fingerprint)
        clustering = self._grouping.groups(self._ring, queries, weights)
        live = [found for found in self._named(clustering, queries, at_ms) if found.record.mass > 0]
        live.sort(key=lambda found: (-found.record.mass, found.record.cluster_id))
        out: list[bytes] = []
        if live:
            evidence = {"window": float(len(queries)), "clusters": float(len(clustering.groups))}
            insights = [self._insight(found, fingerprint, eps, at_ms, clustering, evidence) for found in live]
            out += [seal(Tag.INSIGHT, envelope_key(self._scope), encode(insight)) for insight in insights]
        if live or self._published:
            views = tuple(self._view(found) for found in live)
            until_ms = at_ms + 2 * self._config.scaled_stride_ms
            told = Clustered(self._scope, at_ms, until_ms, fingerprint, views)
            out.append(seal(Tag.CLUSTERED, self._config.redis_pool, told))
        self._published = bool(live)
        return out

    def _weights(self, queries: list[str], at_ms: int) -> list[float]:
        """Requests of each query; that it was embedded lately says that there was at least one."""
        counts = self._counts.totals()
        since_ms = at_ms - self._config.scaled_mass_ms
        return [float(counts.get(query, 0) or self._ring.last_ms(query) >= since_ms) for query in queries]

    def _named(self, clustering: Clustering, queries: list[str], at_ms: int) -> list[_Found]:
        """The groups with the ids that they go on with; keeps them for the next stride."""
        members = [tuple(queries[row] for row in group.members) for group in clustering.groups]
        before = {cluster_id: record.members for cluster_id, record in self._before.items()}
        found = []
        for group, names, kept in zip(clustering.groups, members, continued(before, members), strict=True):
            medoid = queries[group.medoid]
            cluster_id = kept or new_id(self._scope, at_ms, medoid)
            was = self._before.get(cluster_id)
            mass_before = was.mass if was is not None else 0.0
            # A share of what it was; of one request where it was nothing.
            growth = (group.mass - mass_before) / max(mass_before, 1.0)
            record = AssignmentRecord(1, cluster_id, was.born_ms if was is not None else at_ms, group.mass, names)
            found.append(_Found(record, medoid, growth))
        now = {each.record.cluster_id: each.record for each in found}
        for cluster_id in self._before.keys() - now.keys():
            self._store.remove("a" + cluster_id)
        for cluster_id, record in now.items():
            if self._before.get(cluster_id) != record:
                self._store.put("a" + cluster_id, pack(record))
        self._before = now
        return found

    def _members(self, found: _Found) -> tuple[str, ...]:
        others = tuple(query for query in found.record.members if query != found.medoid)
        return (found.medoid, *others)[: self._config.max_members]

    def _insight(
        self,
        found: _Found,
        fingerprint: str,
        eps: float,
        at_ms: int,
        clustering: Clustering,
        evidence: dict[str, float],
    ) -> Cluster:
        record = found.record
        return Cluster(
            scope=self._scope,
            cluster_id=record.cluster_id,
            rule=self._config.rule,
            fingerprint=fingerprint,
            eps=eps,
            at_ms=at_ms,
            medoid=found.medoid,
            members=self._members(found),
            size=len(record.members),
            mass=record.mass,
            growth=found.growth,
            largest_share=clustering.largest_share,
            evidence={**evidence, "age_ms": float(at_ms - record.born_ms)},
        )

    def _view(self, found: _Found) -> LiveCluster:
        record = found.record
        rate_per_s = record.mass * 1000 / self._config.scaled_mass_ms
        members = self._members(found)
        return LiveCluster(record.cluster_id, members, len(record.members), record.mass, found.growth, rate_per_s)

    def _wake(self, scope: str, event_ms: int) -> None:
        stride_ms = self._config.scaled_stride_ms
        due = (max(event_ms, self._last_timer_ms) // stride_ms + 1) * stride_ms
        if scope != self._scope or self._next_timer_ms is None or due < self._next_timer_ms:
            self._scope = scope
            self._next_timer_ms = due
            self._write()

    def _due(self, at_ms: int) -> int | None:
        """The next stride while something is asked for; else the one at which the first query has aged out."""
        stride_ms = self._config.scaled_stride_ms
        oldest_ms = self._ring.oldest_ms
        if self._counts or self._published or oldest_ms is None:
            wanted_ms = at_ms if self._counts or self._published else None
        else:
            wanted_ms = max(at_ms, oldest_ms + self._config.scaled_max_age_ms)
        return None if wanted_ms is None else (wanted_ms // stride_ms + 1) * stride_ms

    def _write(self) -> None:
        record = TimerRecord(1, self._scope, self._last_timer_ms, self._next_timer_ms, self._published)
        self._store.put("t", pack(record))

    def _restore(self) -> None:
        for key, blob in self._store.items():
            section = key[0]
            if section == "v":
                self._ring.restore(blob)
            elif section == "l":
                self._ring.restore_asked(blob)
            elif section == "c":
                self._counts.restore(blob)
            elif section == "a":
                record = unpack(blob, AssignmentRecord)
                self._before[record.cluster_id] = record
            elif section == "t":
                timer = unpack(blob, TimerRecord)
                self._scope, self._published = timer.scope, timer.published
                self._last_timer_ms, self._next_timer_ms = timer.last_timer_ms, timer.next_timer_ms
