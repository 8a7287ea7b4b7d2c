"""The cluster operator over a stand-in of Flink: scopes do not mix, and a new object goes on from the state."""

from __future__ import annotations

from typing import Any

import numpy as np

from analytics.clustered import Clustered, QueryVector
from analytics.envelopes import KeyCount, Partial, Tag, key_of, open_as, seal, tag_of
from jobs.operators.cluster import ClusterOperator
from jobs.operators.tags import INSIGHTS
from jobs.settings import JobSettings
from schemas import Cluster, decode
from schemas.canonical import query_sha256
from tests.jobs.flink_stand_in import Backend, Context, Plain

START_MS = 1_796_000_010_000
STRIDE_MS = 30_000
SETTINGS = JobSettings()
CONFIG = SETTINGS.to_json()
FINGERPRINT = "f" * 32


def opened(backend: Backend) -> Plain:
    """The operator, as Flink has it after a start."""
    operator = ClusterOperator(CONFIG)
    operator.open(backend)
    return Plain(operator)


def vectors(scope: str, topic: int, count: int, at_ms: int = START_MS) -> list[bytes]:
    """Vectors of a scope's queries about one topic, near each other."""
    made = []
    for index in range(count):
        row = np.zeros(16)
        row[topic], row[15] = 1.0, 0.01 * index
        query = query_sha256(f"topic {topic} in words {index}")
        vector = row.astype("<f4").tobytes()
        made.append(seal(Tag.VECTOR, scope, QueryVector(scope, query, FINGERPRINT, vector, at_ms)))
    return made


def counts(scope: str, topic: int, asked: dict[int, int], pane_ms: int = START_MS) -> bytes:
    """How often the queries of a topic were asked for in a pane."""
    top = tuple(KeyCount(query_sha256(f"topic {topic} in words {index}"), n, 1) for index, n in asked.items())
    total = sum(asked.values())
    partial = Partial(scope, "gpu", "query", 0, pane_ms, pane_ms + 10_000, 1, float(total), 0.0, len(asked), total, top)
    return seal(Tag.PARTIAL, scope, partial)


def drive(envelopes: list[bytes], strides: int, die_at: set[int] | None = None) -> tuple[list[Any], Backend]:
    """What the operator says to some envelopes, and at each stride after them; new objects at some steps."""
    backend, out = Backend(), []
    operator = opened(backend)
    due: set[tuple[int, str]] = set()
    for index, envelope in enumerate(envelopes):
        if die_at and index in die_at:
            operator = opened(backend)
        context = Context(backend, key_of(envelope), START_MS)
        out += operator.process_element(envelope, context)
        due |= {(at, key_of(envelope)) for at in context.event_timers}
    for _ in range(strides):
        if not due:
            break
        at, scope = min(due)
        due.discard((at, scope))
        if die_at:
            operator = opened(backend)
        context = Context(backend, scope, at)
        out += operator.on_timer(at, context)
        due |= {(later, scope) for later in context.event_timers}
    return out, backend


def insights(out: list[Any]) -> list[Cluster]:
    """The insights among what was said."""
    return [decode(each[1][1], Cluster) for each in out if not isinstance(each, bytes) and each[0] is INSIGHTS]


def told(out: list[Any]) -> list[Clustered]:
    """What the planner hears."""
    envelopes = [each for each in out if isinstance(each, bytes)]
    assert {(tag_of(each), key_of(each)) for each in envelopes} <= {(Tag.CLUSTERED, SETTINGS.redis.pool_key)}
    return [open_as(each, Clustered) for each in envelopes]


def test_a_topic_of_a_scope_becomes_an_insight_and_the_planner_hears_of_it() -> None:
    out, _ = drive([*vectors("a", 1, 6), counts("a", 1, {0: 7, 3: 60})], strides=1)
    (insight,) = insights(out)
    (clustered,) = told(out)
    assert out[0][1][0] == b"a"  # the key of its record
    assert (insight.scope, insight.size, insight.mass, insight.fingerprint) == ("a", 6, 71.0, FINGERPRINT)
    assert insight.members[:2] == (insight.medoid, query_sha256("topic 1 in words 0"))
    assert insight.medoid == query_sha256("topic 1 in words 3")
    assert insight.eps == 0.32  # nothing is known of this encoder
    (live,) = clustered.clusters
    assert (live.cluster_id, live.members, live.mass) == (insight.cluster_id, insight.members, insight.mass)
    assert live.rate_per_s == 71 / 300


def test_scopes_do_not_mix() -> None:
    ours, theirs = vectors("a", 1, 3), vectors("b", 1, 3)
    assert drive(ours + theirs, strides=4)[0] == []  # six like queries, but three in each scope
    out, _ = drive(vectors("a", 1, 6) + vectors("b", 2, 6), strides=2)
    of = {each.scope: each for each in insights(out)}
    assert set(of) == {"a", "b"}
    assert not set(of["a"].members) & set(of["b"].members)
    assert of["a"].cluster_id != of["b"].cluster_id


def test_a_new_object_at_any_point_says_the_same() -> None:
    envelopes = vectors("a", 1, 7) + vectors("a", 2, 5) + [counts("a", 1, {0: 3, 1: 4}), counts("a", 2, {2: 9})]
    steady, _ = drive(envelopes, strides=4)
    assert len(insights(steady)) == 8
    again, _ = drive(envelopes, strides=4, die_at={3, 8, 13})
    assert [each if isinstance(each, bytes) else (each[0], tuple(each[1])) for each in again] == [
        each if isinstance(each, bytes) else (each[0], tuple(each[1])) for each in steady
    ]


def test_a_scope_that_went_quiet_leaves_nothing_behind() -> None:
    out, backend = drive(vectors("a", 1, 6), strides=1_000)
    assert insights(out)
    assert told(out)[-1].clusters == ()
    assert len(told(out)) == 1 + len(insights(out))
    backend.key = "a"
    assert backend.states["records"].items() == []
    assert backend.states["marker"].keys() == []


def test_counts_of_a_scope_of_which_nothing_is_embedded_are_not_kept() -> None:
    out, backend = drive([counts("a", 1, {0: 3})], strides=3)
    assert out == []
    backend.key = "a"
    assert backend.states["records"].items() == []
