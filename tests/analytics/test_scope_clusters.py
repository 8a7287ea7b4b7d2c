"""The clusters of a scope over time: mass, growth, identity, bounds, and state that goes on at any point."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.cluster_config import ClusterConfig
from analytics.clustered import Clustered, QueryVector
from analytics.envelopes import KeyCount, Partial, Tag, body_of, key_of, open_as, tag_of
from analytics.query_counts import QueryCounts
from analytics.records import Section
from analytics.scope_clusters import ScopeClusters
from analytics.stores import MemoryMapStore
from schemas import Cluster, decode
from schemas.canonical import query_sha256

T0 = 1_790_000_010_000
STRIDE = 30_000
PANE = 10_000
FINGERPRINT, OTHER = "f" * 32, "e" * 32
POOL = "redis:main"
CONFIG = ClusterConfig(rule="spec", redis_pool=POOL)
TUNED = ClusterConfig(redis_pool=POOL)


def query(topic, number):
    return query_sha256(f"{topic} {number}")


def vector(topic, number, at_ms=T0, fingerprint=FINGERPRINT, scope="s"):
    """A query of a topic; all of a topic are near each other, topics are at right angles."""
    row = np.zeros(12, dtype="<f4")
    row[topic], row[11] = 1.0, 0.02 * number
    return QueryVector(scope, query(topic, number), fingerprint, row.tobytes(), at_ms)


def counts(asked, pane_ms=T0, revision=1, shard=0, scope="s", pool="gpu"):
    """Totals of a pane: how often each (topic, number) was asked for."""
    top = tuple(KeyCount(query(*name), count, 1) for name, count in asked.items())
    total = sum(asked.values())
    return Partial(
        scope, pool, "query", shard, pane_ms, pane_ms + PANE, revision, float(total), 0.0, len(asked), 1, top
    )


class Drive:
    """A scope's clusters, and what they said."""

    def __init__(self, config=CONFIG):
        self.config, self.store = config, MemoryMapStore()
        self.clusters = ScopeClusters(config, self.store)

    def rebuild(self):
        self.store = self.store.copy()
        self.clusters = ScopeClusters(self.config, self.store)

    def topic(self, topic, numbers, at_ms=T0):
        for number in numbers:
            self.clusters.on_vector(vector(topic, number, at_ms))

    def stride(self):
        """The next stride; its insights, and what the planner hears."""
        at_ms = self.clusters.next_timer_ms
        out = self.clusters.on_timer(at_ms)
        insights = [decode(body_of(each), Cluster) for each in out if tag_of(each) == Tag.INSIGHT]
        told = [open_as(each, Clustered) for each in out if tag_of(each) == Tag.CLUSTERED]
        assert len(told) <= 1
        assert all(key_of(each) == (POOL if tag_of(each) == Tag.CLUSTERED else "s") for each in out)
        assert all(insight.at_ms == at_ms for insight in insights)
        return insights, told[0] if told else None


def test_a_stride_tells_mass_medoid_and_members():
    drive = Drive(ClusterConfig(rule="spec", redis_pool=POOL, eps={FINGERPRINT: 0.05}))
    drive.topic(1, range(6))
    drive.topic(2, range(3))
    drive.clusters.on_counts(counts({(1, 2): 40, (1, 5): 2, (2, 0): 90}))
    drive.clusters.on_counts(counts({(1, 2): 10}, shard=7))
    ((insight,), told) = drive.stride()
    assert (insight.size, insight.mass, insight.medoid) == (6, 50 + 2 + 4, query(1, 2))
    assert insight.members[:2] == (query(1, 2), query(1, 5))
    assert (insight.rule, insight.eps) == ("spec", 0.05)
    assert insight.largest_share == pytest.approx(6 / 9)
    assert (insight.evidence["window"], insight.evidence["clusters"]) == (9, 1)
    (live,) = told.clusters
    assert (told.at_ms, told.until_ms) == (insight.at_ms, insight.at_ms + 2 * STRIDE)
    assert (live.members, live.size, live.mass, live.rate_per_s) == (insight.members, 6, 56, 56 / 300)


def test_the_tuned_rule_counts_requests_but_calls_no_single_query_a_group():
    drive = Drive(ClusterConfig(redis_pool=POOL, eps={FINGERPRINT: 0.05}))
    drive.topic(1, range(2))
    drive.topic(2, range(1))
    drive.clusters.on_counts(counts({(1, 0): 3, (2, 0): 50}))
    assert drive.stride() == ([], None)  # four requests near each other
    drive.clusters.on_counts(counts({(1, 1): 2}, pane_ms=T0 + STRIDE))
    ((insight,), told) = drive.stride()
    assert (insight.rule, insight.size, insight.mass, insight.medoid) == ("tuned", 2, 5, query(1, 0))
    assert insight.members == (query(1, 0), query(1, 1))
    assert insight.largest_share == pytest.approx(2 / 3)
    assert [(each.members, each.mass) for each in told.clusters] == [(insight.members, 5)]


def test_the_tuned_rule_follows_what_comes_goes_and_is_embedded_anew():
    config = ClusterConfig(redis_pool=POOL, window=8, min_samples=2)
    drive = Drive(config)
    rng = random.Random(11)
    for step in range(12):
        for _ in range(3):
            topic, number = rng.randrange(3), rng.randrange(4)
            moved = QueryVector("s", query(topic, number), FINGERPRINT, vector(rng.randrange(3), 0).vector, T0 + step)
            drive.clusters.on_vector(rng.choice([moved, vector(topic, number, T0 + step)]))
        drive.clusters.on_counts(counts({(rng.randrange(3), rng.randrange(4)): 2}, pane_ms=T0 + step * STRIDE))
        at_ms, anew = drive.clusters.next_timer_ms, Drive(config)
        anew.store = drive.store.copy()
        anew.clusters = ScopeClusters(config, anew.store)
        out = drive.clusters.on_timer(at_ms)
        assert out == anew.clusters.on_timer(at_ms)
        assert out


def test_where_all_queries_are_alike_only_the_latest_are_looked_at():
    drive = Drive(ClusterConfig(redis_pool=POOL, max_links=1_000))
    drive.topic(1, range(40))
    ((insight,), _) = drive.stride()
    assert insight.size == 40
    drive.topic(1, range(40, 60), T0 + STRIDE)
    ((insight,), _) = drive.stride()
    assert insight.size == 44  # 44 queries that are all alike have 946 pairs, 60 have 1,770
    assert {query(1, number) for number in range(40, 60)} <= set(insight.members)
    drive.clusters.on_vector(vector(2, 0, T0 + 2 * STRIDE))
    assert drive.stride()[0][0].size == 43


def test_growth_is_the_change_since_the_last_stride_as_a_share():
    drive = Drive()
    drive.topic(1, range(5))
    drive.clusters.on_counts(counts({(1, 0): 6}))
    ((born,), _) = drive.stride()
    assert (born.mass, born.growth) == (10, 10)
    drive.clusters.on_counts(counts({(1, 0): 15}, pane_ms=T0 + STRIDE))
    ((grown,), _) = drive.stride()
    assert (grown.mass, grown.growth, grown.cluster_id) == (25, 1.5, born.cluster_id)
    assert grown.evidence["age_ms"] == STRIDE


def test_a_revision_replaces_what_it_revises_and_panes_leave_with_the_window():
    drive = Drive()
    drive.topic(1, range(5))
    drive.clusters.on_counts(counts({(1, 0): 6, (1, 1): 2}))
    drive.clusters.on_counts(counts({(1, 0): 9}, revision=2))
    drive.clusters.on_counts(counts({(1, 0): 100}, revision=1))
    ((insight,), _) = drive.stride()
    assert insight.mass == 9 + 4
    masses = [insight.mass]
    while found := drive.stride()[0]:
        masses.append(found[0].mass)
    assert masses == [13.0] * 10  # five minutes
    assert drive.clusters.next_timer_ms > T0 + 3_600_000


def test_a_group_that_nobody_asks_for_is_silent_and_comes_back_with_its_id():
    drive = Drive()
    drive.topic(1, range(5))
    ((insight,), _) = drive.stride()
    while True:
        found, told = drive.stride()
        if not found:
            break
    assert told.clusters == ()
    later = drive.clusters.next_timer_ms - 10 * STRIDE
    drive.clusters.on_counts(counts({(1, 0): 3}, pane_ms=later))
    ((again,), _) = drive.stride()
    assert again.cluster_id == insight.cluster_id
    assert (again.mass, again.growth) == (3, 3)


def test_an_id_is_never_used_again_even_by_the_same_queries():
    drive, seen = Drive(), []
    for round_ms in range(T0, T0 + 3 * 7_200_000, 7_200_000):
        drive.topic(1, range(5), round_ms)
        ((insight,), _) = drive.stride()
        seen.append(insight.cluster_id)
        while drive.clusters.next_timer_ms is not None:
            drive.stride()
        assert drive.clusters.blank
        assert drive.store.records == {}
    assert len(set(seen)) == 3


def test_the_window_keeps_the_queries_that_were_asked_for_last():
    drive = Drive(ClusterConfig(rule="spec", redis_pool=POOL, window=10))
    drive.topic(1, range(5), T0)
    drive.topic(2, range(5), T0 + 1)
    drive.clusters.on_counts(counts({(1, number): 1 for number in range(5)}, pane_ms=T0 + PANE))
    drive.topic(3, range(5), T0 + 2)
    found, _ = drive.stride()
    assert {insight.medoid for insight in found} & {query(2, n) for n in range(5)} == set()
    assert {insight.members[0] in {query(topic, n) for topic in (1, 3) for n in range(5)} for insight in found} == {
        True
    }
    assert len(found) == 2
    # What the counts have forgotten by then is still known.
    for pane in range(2, 40):
        drive.clusters.on_counts(counts({(1, number): 1 for number in range(5)}, pane_ms=T0 + pane * PANE))
        if pane % 3 == 2:
            drive.stride()
    drive.topic(4, range(5), T0 + 40 * PANE)
    found, _ = drive.stride()
    assert {query(1, 0), query(4, 0)} <= {member for insight in found for member in insight.members}


def test_vectors_of_another_encoder_begin_anew():
    drive = Drive()
    drive.topic(1, range(6))
    drive.stride()
    drive.clusters.on_vector(vector(1, 0, T0 + STRIDE, OTHER))
    assert drive.stride() == ([], Clustered("s", T0 + 60_000, T0 + 60_000 + 2 * STRIDE, OTHER, ()))
    for number in range(1, 5):
        drive.clusters.on_vector(vector(1, number, T0 + 2 * STRIDE, OTHER))
    ((insight,), _) = drive.stride()
    assert (insight.fingerprint, insight.size) == (OTHER, 5)


def test_time_scale_shortens_everything_alike():
    slow, fast = Drive(), Drive(ClusterConfig(rule="spec", redis_pool=POOL, time_scale=10))
    for drive, scale in ((slow, 1), (fast, 10)):
        for number in range(6):
            drive.clusters.on_vector(vector(1, number, T0 // scale))
    ((one,), a), ((other,), b) = slow.stride(), fast.stride()
    assert one.mass == other.mass
    assert b.clusters[0].rate_per_s == pytest.approx(10 * a.clusters[0].rate_per_s)
    assert (fast.clusters.next_timer_ms - other.at_ms) * 10 == slow.clusters.next_timer_ms - one.at_ms == STRIDE


def test_state_is_bounded_whatever_names_producers_make_up():
    drive = Drive(ClusterConfig(rule="spec", redis_pool=POOL, window=20, max_places=100))
    for number in range(400):
        drive.clusters.on_vector(vector(number % 5, number, T0 + number))
        drive.clusters.on_counts(counts({(number % 5, number): 1}, pool=f"pool {number}"))
    sections = [key[0] for key in drive.store.records]
    assert (sections.count("v"), sections.count("c")) == (20, 100)


def test_counts_are_the_sum_over_panes_shards_and_pools():
    store = MemoryMapStore()
    held = QueryCounts(100, Section(store, "c"))
    rng, wanted = random.Random(3), {}
    for pane in range(6):
        for shard in range(3):
            for pool in ("a", "b"):
                asked = {(1, number): rng.randint(1, 9) for number in rng.sample(range(8), 4)}
                held.add(counts(asked, T0 + pane * PANE, 1, shard, pool=pool), lambda name: name != query(1, 0))
                if pane >= 2:
                    for name, count in asked.items():
                        wanted[query(*name)] = wanted.get(query(*name), 0) + count
    wanted.pop(query(1, 0))
    held.forget(T0 + 2 * PANE)
    assert held.totals() == wanted
    assert max(held.last_ms().values()) == T0 + 5 * PANE
    again = QueryCounts(100, Section(store, "c"))
    for key, blob in store.items():
        assert key.startswith("c")
        again.restore(blob)
    assert again.totals() == wanted
    held.forget(T0 + 60 * PANE)
    assert not held
    assert (store.records, held.totals()) == ({}, {})


@st.composite
def scripts(draw):
    """Vectors and counts of a few topics while time goes on, with now and then another encoder."""
    steps, at_ms = [], T0
    for _ in range(draw(st.integers(5, 40))):
        at_ms += draw(st.sampled_from([0, 500, 4_000, 25_000, 200_000]))
        topic, number = draw(st.integers(0, 2)), draw(st.integers(0, 6))
        kind = draw(st.sampled_from(["vector"] * 4 + ["counts"] * 3 + ["other"]))
        if kind == "counts":
            asked = {(topic, n): draw(st.integers(0, 5)) for n in range(number + 1)}
            pane = at_ms // PANE * PANE - draw(st.sampled_from([0, PANE, 40 * PANE]))
            steps.append(counts(asked, pane, draw(st.integers(1, 3)), draw(st.integers(0, 1))))
        else:
            rare = kind == "other" and draw(st.integers(0, 3)) == 0
            steps.append(vector(topic, number, at_ms, OTHER if rare else FINGERPRINT))
        steps += [None] * draw(st.integers(0, 2))
    return steps


@settings(max_examples=40, deadline=None)
@given(
    rule=st.sampled_from(["spec", "tuned"]),
    max_links=st.sampled_from([20, 1_000]),
    steps=scripts(),
    window=st.integers(6, 16),
    max_age_ms=st.sampled_from([300_000, 3_600_000]),
    deaths=st.sets(st.integers(0, 130)),
)
def test_rebuilt_at_any_point_it_says_the_same(rule, max_links, steps, window, max_age_ms, deaths):
    config = ClusterConfig(
        rule=rule, redis_pool=POOL, window=window, max_age_ms=max_age_ms, max_places=100, max_links=max_links
    )
    steady, broken = Drive(config), Drive(config)
    for index, step in enumerate([*steps, *[None] * 5]):
        if index in deaths:
            broken.rebuild()
        for drive in (steady, broken):
            if isinstance(step, QueryVector):
                drive.clusters.on_vector(step)
            elif step is not None:
                drive.clusters.on_counts(step)
        due = steady.clusters.next_timer_ms
        assert broken.clusters.next_timer_ms == due
        if step is None and due is not None:
            assert broken.clusters.on_timer(due) == steady.clusters.on_timer(due)
        assert broken.store.records == steady.store.records
        assert broken.clusters.blank == steady.clusters.blank
