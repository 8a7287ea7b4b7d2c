"""Sliding features of sessions and their groups: what was planted is found, faded groups go, scopes never mix."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics import facts
from analytics.envelopes import Tag, seal
from analytics.patterns import packed_sketch
from analytics.records import Section
from analytics.request_features import Features, SessionFeatures, sliding_features
from analytics.request_groups import MAX_GROUPS, RequestGroups
from analytics.stores import MemoryMapStore
from analytics.turns import Turn
from schemas import Pattern, Segment
from tests.analytics.test_planning import T0, Drive

LIFE_MS = 300_000
KINDS = {
    "chat": Features("m", 400.0, (0.5, 0.5, 0.0, 0.0), 800.0),
    "agent": Features("m", 6_000.0, (0.2, 0.1, 0.1, 0.6), 4_000.0),
    "summary": Features("m", 6_000.0, (0.05, 0.95, 0.0, 0.0), 2_000.0),
    "tuned": Features("support@3", 400.0, (0.5, 0.5, 0.0, 0.0), 800.0),
}


def like(kind: str, rng: random.Random) -> Features:
    """A request of a kind, its length and latency off by up to a quarter."""
    base = KINDS[kind]
    assert base.latency_ms is not None
    tokens, latency_ms = (value * rng.uniform(0.8, 1.25) for value in (base.tokens, base.latency_ms))
    return Features(base.version, tokens, base.shares, latency_ms if rng.random() < 0.7 else None)


def groups_of(store: MemoryMapStore) -> RequestGroups:
    groups = RequestGroups(LIFE_MS, Section(store, "g"))
    for _, blob in store.copy().items():
        groups.restore(blob)
    return groups


def turn(number: int, *written: tuple[Any, int], model: str = "m", tokens: int = 0, latency_ms: float = 0.0) -> Turn:
    segments = tuple(Segment(f"{i:032x}", count, role) for i, (role, count) in enumerate(written))
    words, distinct = packed_sketch("words")
    names = facts.pack_names("s", "p", model, "", "t")
    chain = facts.pack_chain(segments)
    return Turn("s", "f" * 32, number, T0 + number, names, chain, words, distinct, tokens, latency_ms)


def test_features_are_the_mean_of_a_sessions_last_prompts_for_one_model() -> None:
    other = turn(0, ("user", 9_999), model="old", latency_ms=9_999.0)
    first = turn(1, ("system", 300), ("user", 100), latency_ms=100.0)
    second = turn(2, ("developer", 800), ("user", 400), ("tool", 200), ("assistant", 200), tokens=1_600)
    found = sliding_features([other, first, second])
    assert (found.version, found.latency_ms) == ("m", pytest.approx(100.0))
    assert found.tokens == pytest.approx(800.0)  # of 400 and 1,600
    assert found.shares == pytest.approx((0.625, 0.25, 0.0625, 0.0625))
    assert sliding_features([second]).latency_ms is None
    with pytest.raises(ValueError, match="at least one prompt"):
        sliding_features([])


def test_tokens_of_blocks_are_nobodys_and_a_prompt_without_segments_has_a_length() -> None:
    assert sliding_features([turn(0, ("block", 16), ("block", 16))]).shares == (0.0, 0.0, 0.0, 0.0)
    assert sliding_features([turn(0, tokens=70)]).tokens == pytest.approx(70.0)
    assert sliding_features([turn(0)]).tokens == 1.0


def test_planted_kinds_are_found_with_their_weight_whatever_the_order() -> None:
    rng = random.Random(7)
    kinds = ["chat"] * 120 + ["agent"] * 60 + ["summary"] * 40 + ["tuned"] * 30
    rng.shuffle(kinds)
    groups = RequestGroups(LIFE_MS, Section(MemoryMapStore(), "g"))
    for index, kind in enumerate(kinds):
        groups.add("s", like(kind, rng), T0 + index)
    found = list(groups.told(T0 + len(kinds)))
    assert [round(group.requests) for group in found] == [120, 60, 40, 30]
    assert [group.version for group in found] == ["m", "m", "m", "support@3"]
    assert found[1].evidence["tokens"] == pytest.approx(6_000, rel=0.1)
    assert found[1].evidence["share_tool"] == pytest.approx(0.6)
    assert found[1].evidence["latency_ms"] == pytest.approx(4_000, rel=0.1)
    assert sum(group.share for group in found) == pytest.approx(1.0)
    assert not any(group.known for group in found)
    assert all(group.known for group in groups.told(T0 + len(kinds)))


def test_requests_that_resemble_nothing_take_no_more_room_than_the_bound() -> None:
    rng, store = random.Random(1), MemoryMapStore()
    groups = RequestGroups(LIFE_MS, Section(store, "g"))
    for index in range(2_000):
        cut = sorted(rng.random() for _ in range(3))
        shares = (cut[0], cut[1] - cut[0], cut[2] - cut[1], 1 - cut[2])
        tokens, latency_ms = 2 ** rng.uniform(0, 20), 2 ** rng.uniform(0, 20)
        groups.add("s", Features(f"m{index % 50}", tokens, shares, latency_ms), T0 + index)
    assert len(store.records) == MAX_GROUPS


def test_what_is_not_asked_any_more_fades_and_leaves_nothing() -> None:
    store = MemoryMapStore()
    groups = RequestGroups(LIFE_MS, Section(store, "g"))
    for index in range(20):
        groups.add("s", KINDS["chat"], T0 + index)
    assert len(list(groups.told(T0 + LIFE_MS))) == 1  # 20 / e of them count
    assert list(groups.told(T0 + 2 * LIFE_MS)) == []
    groups.forget(T0 + 5 * LIFE_MS)
    assert groups
    groups.forget(T0 + 7 * LIFE_MS)
    assert not groups
    assert store.records == {}


def test_two_groups_whose_requests_have_become_alike_are_one() -> None:
    groups = RequestGroups(LIFE_MS, Section(MemoryMapStore(), "g"))
    for tokens in (400.0, 1_000.0):
        groups.add("s", Features("m", tokens, (0.5, 0.5, 0.0, 0.0), None), T0)
    for index in range(40):
        step = min(1.0, index / 20)
        for tokens in (400 * 1.58**step, 1_000 / 1.58**step):
            groups.add("s", Features("m", tokens, (0.5, 0.5, 0.0, 0.0), None), T0 + index)
    (group,) = groups.told(T0 + 40)
    assert (group.number, round(group.requests)) == (1, 82)


def test_no_scope_sees_anothers_requests() -> None:
    groups = RequestGroups(LIFE_MS, Section(MemoryMapStore(), "g"))
    for index in range(12):
        groups.add(("a", "b", "b")[index % 3], KINDS["chat"], T0 + index)
    assert [(group.scope, round(group.requests), group.share) for group in groups.told(T0 + 12)] == [("b", 8, 1.0)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            st.sampled_from(sorted(KINDS)),
            st.integers(-20_000, 400_000),
            st.integers(0, 9),
        ),
        max_size=40,
    ),
    st.sets(st.integers(0, 40)),
)
def test_groups_rebuilt_anywhere_say_the_same(script: list[tuple[str, str, int, int]], crashes: set[int]) -> None:
    def run(crashes: set[int]) -> list[object]:
        store, out, clock = MemoryMapStore(), [], T0
        groups = groups_of(store)
        for index, (scope, kind, step, seed) in enumerate(script):
            if index in crashes:
                items = list(store.records.items())
                random.Random(index).shuffle(items)
                store = MemoryMapStore()
                store.records = dict(items)
                groups = groups_of(store)
            clock += max(0, step)
            for number in range(seed):
                groups.add(scope, like(kind, random.Random(number)), clock + min(0, step))
            out += groups.told(clock)
            groups.forget(clock)
        return [*out, sorted(store.records.items())]

    assert run(crashes) == run(set())


def test_a_planner_tells_of_groups_once_a_slide_and_warms_nothing_for_them() -> None:
    drive = Drive()
    for index in range(8):
        told = SessionFeatures("s", T0 + index, KINDS["chat"])
        assert drive.hear(seal(Tag.FEATURES, "p", told)) == []
    assert drive.run(25_000) == []
    drive.rebuild()
    assert drive.run(10_000) == []
    insights = [insight for insight in drive.insights if isinstance(insight, Pattern)]
    assert {(insight.pattern, insight.subject) for insight in insights} == {("request_group", "m#1")}
    assert [insight.state for insight in insights] == [201, 202, 202, 202]
    assert insights[0].evidence["requests"] == pytest.approx(8, rel=0.05)
    assert insights[0].evidence["share"] == 1.0
    drive.run(2_400_000)
    assert [key for key in drive.store.records if key.startswith("g")] == []
