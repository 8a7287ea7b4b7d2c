"""The memory of asks is bounded, and read back as it was."""

from __future__ import annotations

from analytics.facts import Flag
from analytics.policy import PolicyBook
from analytics.second_sight import SecondSight, SecondSightConfig, Sight
from schemas import Policy
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


def sampling(share: float) -> PolicyBook:
    book = PolicyBook()
    body = {"first_sight_share": share}
    book.apply(Policy(scope="a", section="plan", writer="w", version=1, at_ms=0, body=body))
    return book


def drawn(sights: SecondSight, book: PolicyBook, names: range, flags: int = Flag.TEXT) -> list[int]:
    found = []
    for name in names:
        sight, tat_us = sights.sample("a", query(f"q{name}"), flags, START_MS, book)
        if sight is Sight.SAMPLED:
            sights.sampled("a", tat_us)
            found.append(name)
    return found


def test_first_sights_are_drawn_by_their_hash_and_only_where_policy_wants_it() -> None:
    rich = SecondSightConfig(shards=1, small=frozenset({"a"}))
    assert drawn(SecondSight(rich), BOOK, range(500)) == []
    some = drawn(SecondSight(rich), sampling(0.05), range(500))
    assert 10 < len(some) < 45
    assert drawn(SecondSight(rich), sampling(0.05), range(500)) == some
    assert drawn(SecondSight(rich), sampling(1.0), range(500), flags=0) == []


def test_a_sample_leaves_half_of_the_bucket_to_second_sights() -> None:
    sights = SecondSight(SecondSightConfig(shards=1))
    assert len(drawn(sights, sampling(1.0), range(500))) == 50
    assert sum(ask(sights, f"q{number}", START_MS) is Sight.ASKED for number in range(150)) == 50
    assert drawn(sights, sampling(1.0), range(500, 600)) == []


def test_a_frozen_scope_samples_nothing() -> None:
    book = sampling(1.0)
    book.apply(Policy(scope="a", section="freeze", writer="w", version=1, at_ms=0, body={"frozen": True}))
    assert drawn(SecondSight(CONFIG), book, range(9)) == []
