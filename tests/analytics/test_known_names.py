"""Names of facts, decoded once and kept within bounds."""

from __future__ import annotations

from analytics.asked import PendingAsked
from analytics.facts import pack_names
from analytics.known_names import MAX_BYTES, KnownNames
from analytics.second_sight import SecondSight, SecondSightConfig


def names(scope: str, template: str = "t") -> bytes:
    return pack_names(scope, "p", "m", "a", template, "", "", template)


def test_names_are_decoded_once_and_count_in_their_scope() -> None:
    sights = SecondSight(SecondSightConfig())
    cache = KnownNames(sights, PendingAsked())
    first = cache.learn(names("s"))
    assert (first.place, first.template, first.adapter) == (("s", "p"), b"t", b"a")
    assert first.sight is sights.scope("s")
    assert cache.known == {names("s"): first}
    other = cache.learn(names("s", "u"))
    assert (other.place, other.sight) == (first.place, first.sight)
    assert other.asked is not first.asked


def test_a_hostile_producers_names_are_kept_within_bounds() -> None:
    cache = KnownNames(SecondSight(SecondSightConfig()), PendingAsked())
    known, most = cache.known, 0
    for number in range(5_000):
        cache.learn(names(f"s{number % 4}", f"{number}" + "x" * 1_000))
        most = max(most, len(known))
    assert cache.known is known
    assert 1_000 < most <= MAX_BYTES // 2_000, "templates stand twice in a fact's names"


def test_what_was_forgotten_is_decoded_to_the_same() -> None:
    cache = KnownNames(SecondSight(SecondSightConfig()), PendingAsked())
    before = cache.learn(names("s"))
    cache.forget()
    assert not cache.known
    after = cache.learn(names("s"))
    assert (after.place, after.template, after.adapter, after.sight) == (
        before.place,
        before.template,
        before.adapter,
        before.sight,
    )
