"""The crowds of a scope: no crash, order or clock shows; dimensions, quiet scopes, and what the planners are told."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.crowd_config import CrowdConfig
from analytics.envelopes import Tag, body_of, key_of, open_as, tag_of
from analytics.focused import Focused
from analytics.scope_focus import FocusConfig, ScopeFocus
from analytics.stores import MemoryMapStore
from schemas import Focus, decode
from tests.analytics.asking import Event, key, numbered, told

PANE_MS = 1_000
SMALL = FocusConfig(
    CrowdConfig(
        pane_ms=PANE_MS,
        panes=6,
        spans=(1, 2),
        min_before_panes=1,
        min_before_askers=2,
        min_users=2,
        z=0.5,
        bar=0.5,
        history=4,
        family_z=0.5,
    ),
    redis_pool="redis:main",
)
"""Finds something in nearly anything, so that a difference would show."""

event = st.tuples(
    st.integers(-2, 2),
    st.integers(0, 999),
    st.integers(0, 3),
    st.integers(0, 5),
    st.sampled_from(["", "t", "u"]),
    st.sampled_from(["", "x", "y"]),
    st.just(0),
    st.sampled_from([(), (1, 2, 3), (1, 2, 4), (1, 2, 5), (1, 6, 0), (1, 0, 0), (7, 8, 9), (7, 2)]),
)
"""Pane from the present one on, time in the pane, query, user, template, adapter, identity, leads."""

scripts = st.lists(
    st.tuples(st.lists(event, min_size=0, max_size=14), st.sampled_from([0, 1, 1, 1, 2, 9])), min_size=1, max_size=12
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(scripts, st.randoms(use_true_random=False))
def test_one_life_and_many_say_the_same(script: list[tuple[list[tuple[int, ...]], int]], chance: random.Random) -> None:
    store = MemoryMapStore()
    whole, broken, pane, number = ScopeFocus(SMALL, MemoryMapStore()), ScopeFocus(SMALL, store), 3, 0
    for rows, ahead in script:
        made = numbered([((pane + p) * PANE_MS + at, *rest) for p, at, *rest in rows if pane + p >= 0])
        made = [each._replace(identity=each.identity + number) for each in made]
        number += len(made)
        for asked in told(made, PANE_MS, at_ms=(pane + 1) * PANE_MS):
            whole.on_asked(asked)
        chance.shuffle(made)
        for own in (made[: len(made) // 2], made[len(made) // 2 :]):
            for asked in told(own, PANE_MS, at_ms=(pane + 1) * PANE_MS):
                broken.on_asked(asked)
                if chance.random() < 0.5:
                    store = store.copy()
                    broken = ScopeFocus(SMALL, store)
        pane += ahead
        while whole.next_timer_ms is not None and whole.next_timer_ms <= pane * PANE_MS:
            assert broken.next_timer_ms == whole.next_timer_ms
            assert broken.on_timer(whole.next_timer_ms) == whole.on_timer(whole.next_timer_ms)
            store = store.copy()
            broken = ScopeFocus(SMALL, store)
        assert broken.next_timer_ms == whole.next_timer_ms
    while whole.next_timer_ms is not None:
        assert broken.on_timer(whole.next_timer_ms) == whole.on_timer(whole.next_timer_ms)
    assert broken.blank
    assert not store.records, "what left the window leaves nothing behind"


def gather(family: int = 0, **names: str) -> list[Event]:
    """Steady requests of many users under two templates and adapters, then many for one query under these names.

    Args:
        family: if they gather on one, where each of them asks something else.
    """
    chance, rows = random.Random(1), []
    for at_ms in range(0, 20_000, 25):
        template, adapter = chance.choice((("t", "x"), ("u", "y")))
        leads = (1, 2, 10 + chance.randrange(5), 0)
        rows.append(Event(at_ms, chance.randrange(40), 1 + chance.randrange(500), template, adapter, 0, leads))
    for at_ms in range(15_000, 18_000, 60):
        query, leads = 99, (1, 2, 10 + chance.randrange(5), 0)
        if family:
            query, leads = at_ms, (1, 2, family, at_ms)
        user = 1_000 + chance.randrange(9_000)
        rows.append(Event(at_ms + chance.randrange(60), query, user, **names, leads=leads))
    return numbered(rows)


def heard(events: list[Event], crowd: CrowdConfig | None = None, store: MemoryMapStore | None = None) -> list[bytes]:
    config = FocusConfig(crowd or CrowdConfig(pane_ms=PANE_MS), redis_pool="redis:main")
    focus, out = ScopeFocus(config, store or MemoryMapStore()), list[bytes]()
    for asked in told(events, PANE_MS):
        while focus.next_timer_ms is not None and focus.next_timer_ms < asked.at_ms:
            out += focus.on_timer(focus.next_timer_ms)
        focus.on_asked(asked)
    while focus.next_timer_ms is not None:
        out += focus.on_timer(focus.next_timer_ms)
    return out


@pytest.mark.parametrize(
    ("names", "dimensions"),
    [
        ({"template": "promo", "adapter": "x"}, {"query", "template"}),
        ({"template": "t", "adapter": "new"}, {"query", "adapter"}),
    ],
)
def test_each_dimension_has_its_crowds_and_the_planners_of_its_pools_hear(
    names: dict[str, str], dimensions: set[str]
) -> None:
    out = heard(gather(**names))
    insights = [decode(body_of(each), Focus) for each in out if tag_of(each) == Tag.INSIGHT]
    crowds = [insight for insight in insights if insight.verdict == "crowd"]
    assert {insight.dimension for insight in crowds} == dimensions
    assert min(insight.at_ms for insight in crowds) == 17_000  # thirty users came by then
    found = [(key_of(each), open_as(each, Focused)) for each in out if tag_of(each) == Tag.FOCUSED]
    keys = {focused.dimension: (pool, focused.keys) for pool, focused in found}
    assert keys["query"] == ("redis:main", (key(99).hex(),))
    (other,) = dimensions - {"query"}
    assert keys[other] == ("gpu", (names[other],))
    assert found[0][1].evidence["users"] >= 30
    assert found[0][1].until_ms == found[0][1].at_ms + 6 * PANE_MS


def test_a_crowd_on_a_family_is_named_by_what_comes_behind_the_trunk() -> None:
    out = heard(gather(family=77, template="t", adapter="x"), store=(store := MemoryMapStore()))
    found = [open_as(each, Focused) for each in out if tag_of(each) == Tag.FOCUSED]
    assert {(focused.dimension, focused.keys) for focused in found} == {("prefix_family", (key(77).hex(),))}
    assert {key_of(each) for each in out if tag_of(each) == Tag.FOCUSED} == {"gpu"}
    assert found[0].at_ms == 17_000
    assert found[0].evidence["users"] >= 30
    insights = [decode(body_of(each), Focus) for each in out if tag_of(each) == Tag.INSIGHT]
    assert {rate.key for insight in insights for rate in insight.keys} == {key(77).hex()}
    assert not store.records


def test_bins_that_did_not_rise_hide_no_crowd() -> None:
    looked_at = CrowdConfig(pane_ms=PANE_MS, family_z=-1e9)
    for family in (0, 77):
        events = gather(family=family, template="t", adapter="x")
        told_by = [
            [open_as(each, Focused) for each in heard(events, crowd) if tag_of(each) == Tag.FOCUSED]
            for crowd in (None, looked_at)
        ]
        assert told_by[0] == told_by[1]
        assert any(focused.dimension == "prefix_family" for focused in told_by[0]) == bool(family)


def test_a_scope_in_which_all_has_one_name_has_no_window_for_it() -> None:
    events = [each._replace(template="t", adapter="") for each in gather(template="t")]
    insights = [decode(body_of(each), Focus) for each in heard(events) if tag_of(each) == Tag.INSIGHT]
    assert {insight.dimension for insight in insights} == {"query"}


def test_a_quiet_scope_is_woken_for_its_requests_and_to_forget_them() -> None:
    config = FocusConfig(CrowdConfig(pane_ms=PANE_MS, panes=30))
    store = MemoryMapStore()
    focus, woken = ScopeFocus(config, store), list[int]()
    for asked in told(numbered([(500, 1, 1), (7_500, 1, 2)]), PANE_MS):
        focus.on_asked(asked)
    while focus.next_timer_ms is not None:
        woken.append(focus.next_timer_ms)
        assert focus.on_timer(focus.next_timer_ms) == []
        focus.on_timer(woken[-1])  # no longer wanted
    assert woken[-1] == 38_000
    assert len(woken) <= 9
    assert not store.records


def test_what_comes_for_a_pane_that_has_left_is_not_kept() -> None:
    focus = ScopeFocus(SMALL, store := MemoryMapStore())
    focus.on_asked(next(told(numbered([(20_500, 1, 1)]), PANE_MS)))
    focus.slide(20)
    before = store.copy().records
    focus.on_asked(next(told(numbered([(14_500, 1, 1)]), PANE_MS)))
    assert store.records == before
