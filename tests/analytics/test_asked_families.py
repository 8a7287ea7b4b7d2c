"""Families of a scope's requests: the trunk that half of them share, what comes behind it, and whether any rises."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.asked_families import AskedFamilies
from analytics.asked_panes import AskedPanes
from analytics.crowd_config import CrowdConfig
from analytics.records import Section
from analytics.stores import MemoryMapStore
from tests.analytics.asking import Event, key, told

PANE_MS = 10
CONFIG = CrowdConfig(
    pane_ms=PANE_MS, panes=8, spans=(1, 2), min_before_panes=2, min_before_askers=10, min_users=5, family_z=3.0
)
Leads = tuple[int, ...]


class Held:
    """Families and the panes that they are found in."""

    def __init__(self) -> None:
        self.store = MemoryMapStore()
        self.panes = AskedPanes(10_000, Section(self.store, "e"))
        self.families = AskedFamilies(CONFIG, self.panes, Section(self.store, "p"))
        self.number = 0

    def put(self, pane: int, leads: list[Leads]) -> None:
        events = [Event(pane * PANE_MS, 1, 1, identity=self.number + at, leads=own) for at, own in enumerate(leads)]
        self.number += len(leads)
        for asked in told(events, PANE_MS):
            self.panes.add(asked)

    def slide(self, last: int) -> bool:
        return self.families.slide(self.panes.inside(last - CONFIG.panes + 1, last))

    def found(self, pane: int) -> Counter[bytes]:
        column = self.families.column(pane)
        return Counter(column.keys[which] for which in column.which.tolist())


def counted(**times: int) -> Counter[bytes]:
    return Counter({key(int(name[1:])): count for name, count in times.items()})


def test_a_family_is_the_first_segment_behind_what_half_of_all_share() -> None:
    held = Held()
    held.put(0, [(1, 2, 3, 9)] * 3 + [(1, 2, 4, 9)] * 3 + [(1, 5, 6, 9)] * 2 + [(7, 8, 9, 9)])
    assert held.slide(0)
    assert held.families.trunk == (key(1), key(2))
    # Who leaves the trunk earlier has his family there.
    assert held.found(0) == counted(_3=3, _4=3, _5=2, _7=1)


def test_a_prompt_that_ends_in_the_trunk_has_its_last_segment_for_a_family() -> None:
    held = Held()
    held.put(0, [(1, 2, 3)] * 2 + [(1, 2, 0)] * 2 + [(1, 0, 0)])
    held.slide(0)
    assert held.families.trunk == (key(1), key(2))
    assert held.found(0) == counted(_3=2, _2=2, _1=1)


def test_the_last_segment_that_is_told_is_a_family_even_where_all_share_it() -> None:
    held = Held()
    held.put(0, [(1, 2, 3)] * 9)
    held.slide(0)
    assert held.families.trunk == (key(1), key(2))
    assert held.found(0) == counted(_3=9)


def test_the_trunk_is_kept_until_clearly_less_than_half_go_through_it() -> None:
    held = Held()
    held.put(0, [(1, at) for at in range(10, 20)])
    held.slide(0)
    assert held.families.trunk == (key(1),)
    held.put(1, [(2, at) for at in range(10, 22)])
    held.slide(1)
    assert held.families.trunk == (key(1),), "10 of 22"
    held.put(2, [(3, at) for at in range(10, 14)])
    held.slide(2)
    assert held.families.trunk == (), "10 of 26"
    assert held.found(0) == counted(_1=10)
    held.put(3, [(2, 9)] * 14)
    held.slide(3)
    assert held.families.trunk == (key(2),), "26 of 40"
    assert held.found(1) == Counter(key(at) for at in range(10, 22))


def test_without_segments_there_are_no_families() -> None:
    held = Held()
    held.put(0, [()] * 5)
    assert not held.slide(0)


def test_what_many_more_ask_for_rises_and_more_of_the_same_does_not() -> None:
    held = Held()
    usual = [(1, family) for family in range(10, 20)] * 4
    for pane in range(5):
        held.put(pane, usual)
        held.slide(pane)
        assert not held.families.rise(0, pane)
    held.put(5, usual * 3)
    held.slide(5)
    assert not held.families.rise(0, 5)
    held.put(5, [(1, 30)] * 40)
    held.slide(5)
    assert held.families.rise(0, 5)


def test_without_a_past_nothing_rises() -> None:
    held = Held()
    for pane in range(2):
        held.put(pane, [(1, 10 + pane)] * 50)
        held.slide(pane)
        assert not held.families.rise(0, pane)


leads = st.tuples(st.integers(1, 2), st.integers(0, 3), st.integers(0, 2)).map(
    lambda told: (*told[:2], told[2] if told[1] else 0)
)
steps = st.lists(st.tuples(st.lists(leads, max_size=12), st.integers(0, 2)), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_one_life_and_many_find_the_same_families(script: list[tuple[list[Leads], int]]) -> None:
    held, last = Held(), 0
    inside: dict[int, list[Leads]] = {}
    for told_leads, ahead in script:
        held.put(last, told_leads)
        inside.setdefault(last, []).extend(told_leads)
        some = held.slide(last)
        trunk = held.families.trunk
        again = AskedFamilies(CONFIG, held.panes, Section(held.store, "p"))
        for name, blob in held.store.items():
            if name[0] == "p":
                again.restore(blob)
        assert again.trunk == trunk
        assert again.slide(held.panes.inside(last - CONFIG.panes + 1, last)) == some
        assert again.trunk == trunk
        for pane in held.panes.inside(last - CONFIG.panes + 1, last):
            expected = Counter(key(_family(own, trunk)) for own in inside[pane])
            assert held.found(pane) == expected
        if some:
            assert again.rise(0, last) == held.families.rise(0, last)
        last += ahead
        held.panes.forget(last - CONFIG.panes + 1)
        for pane in [pane for pane in inside if pane <= last - CONFIG.panes]:
            del inside[pane]


def _family(own: Leads, trunk: tuple[bytes, ...]) -> int:
    """As `trunk.family_of` says it of a path."""
    path = [each for each in own if each]
    for place, each in enumerate(path):
        if place >= len(trunk) or key(each) != trunk[place]:
            return each
    return path[-1]
