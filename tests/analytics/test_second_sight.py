"""The memory of asks is bounded, and read back as it was."""

from __future__ import annotations

from analytics.facts import Flag
from analytics.policy import PolicyBook
from analytics.second_sight import SecondSight, SecondSightConfig, Sight
from tests.analytics.shard_script import START_MS, query

BOOK = PolicyBook()
CONFIG = SecondSightConfig(shards=1, max_asked=3)


def ask(sights: SecondSight, name: str, at_ms: int) -> Sight:
    sight, tat_us = sights.decide("a", query(name), Flag.TEXT, at_ms, at_ms, BOOK)
    if sight is Sight.ASKED:
        sights.asked(("a", query(name), at_ms), tat_us)
    return sight


def slide(sights: SecondSight, number: int) -> tuple[bytes, list[int]]:
    blob = sights.rest()
    sights.laid(number)
    return blob, sights.expire(START_MS, BOOK)


def test_beyond_the_cap_the_oldest_asks_are_forgotten_first() -> None:
    sights = SecondSight(CONFIG)
    for number in range(4):
        assert ask(sights, f"q{number}", START_MS) is Sight.ASKED
        assert slide(sights, number)[1] == ([0] if number == 3 else [])
    assert ask(sights, "q1", START_MS) is Sight.NONE
    assert ask(sights, "q0", START_MS) is Sight.ASKED


def test_asks_are_read_back_and_leave_when_their_interval_is_over() -> None:
    sights = SecondSight(CONFIG)
    ask(sights, "q", START_MS)
    blob, _ = slide(sights, 7)
    again = SecondSight(CONFIG)
    again.restore([(7, blob)])
    assert ask(again, "q", START_MS + 3_599_999) is Sight.NONE
    assert again.expire(START_MS + 3_599_999, BOOK) == []
    assert again.expire(START_MS + 3_600_000, BOOK) == [7]
    assert again.drop_empty(START_MS + 3_600_000)
    assert again.scopes == {}


def test_a_small_scope_has_its_whole_rate_in_its_one_shard() -> None:
    whole = SecondSight(SecondSightConfig(shards=50, small=frozenset({"a"})))
    part = SecondSight(SecondSightConfig(shards=50))
    assert [sum(ask(each, f"q{i}", START_MS) is Sight.ASKED for i in range(150)) for each in (whole, part)] == [100, 2]
