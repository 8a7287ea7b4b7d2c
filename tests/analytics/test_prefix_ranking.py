"""The lazy ranking against a look at everything and a full sort."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.commands import NEVER_MS, Offer
from analytics.envelopes import Root
from analytics.memory import TargetMemory
from analytics.prefix_look import FREE_MS, UNKNOWN_MS, Columns, PoolNow, Terms, look_at
from analytics.prefix_ranking import Look, Ranking, suppressed
from analytics.replicas import Ready
from tests.analytics.test_memory import memory_of

ROOT, GONE = Root("m", "", "t", "", ""), Root("old", "", "t", "", "")
NOW = PoolNow(1_000_000, Ready(("r1", "r2", "r3"), (1, 1, 1), (16, 64, 16)), 0.05)
ALONE = PoolNow(1_000_000, Ready(("r1",), (1,), (16,)), 0.05, 0.005, 120_000.0)
RENEWED = PoolNow(1_000_000, NOW.ready, 0.05, 0.002, 120_000.0)
CHANGED_MS = 990_000


def bare(columns: Columns) -> Columns:
    """Without what was noted."""
    return columns._replace(free_ms=np.full(len(columns.keys), UNKNOWN_MS))


@st.composite
def pools(draw: st.DrawFn) -> tuple[list[Look], TargetMemory]:
    """Scopes of two classes with equal and different prefixes, some of them known on some replicas."""
    memory = memory_of()
    looks = []
    for number in range(draw(st.integers(0, 5))):
        count = draw(st.integers(0, 12))
        columns = Columns(
            tuple(f"prefix:{number}.{place}" for place in range(count)),
            tuple(draw(st.sampled_from((ROOT, ROOT, GONE))) for _ in range(count)),
            np.array([draw(st.sampled_from((0.0, 0.001, 0.01, 0.1))) for _ in range(count)]),
            np.array([draw(st.sampled_from((0.1, 0.5, 1.0))) for _ in range(count)]),
            np.array([float(draw(st.sampled_from((8, 40, 5_000)))) for _ in range(count)]),
            np.array([draw(st.sampled_from((CHANGED_MS - 1, CHANGED_MS))) for _ in range(count)], dtype=np.int64),
            np.full(count, UNKNOWN_MS),
        )
        copies = draw(st.integers(1, 4))
        terms = Terms(draw(st.integers(0, 1)), copies, NOW.at_ms + 5_000, 16, 60_000, 120_000, 1.0)
        looks.append(
            Look(f"s{number}", columns, terms, draw(st.sampled_from(({}, {GONE: NEVER_MS}, {ROOT: CHANGED_MS}))))
        )
        for key in columns.keys:
            for replica in draw(st.sets(st.sampled_from(NOW.ready.names))):
                until_ms = NOW.at_ms + draw(st.sampled_from((2_000, 60_000)))
                seen_ms = NOW.at_ms - draw(st.sampled_from((1_000, 40_000, 80_000)))
                memory.on_residency(f"s{number}", key, replica, 1, seen_ms, until_ms)
    return looks, memory


def everything(looks: list[Look], memory: TargetMemory, now: PoolNow = NOW) -> list[Offer]:
    found = []
    for look in looks:
        columns = look.columns
        for place, (root, last_ms) in enumerate(zip(columns.roots, columns.last_ms, strict=True)):
            if last_ms >= look.ended.get(root, 0) and columns.tokens[place] >= now.ready.block_tokens:
                offer, _ = look_at(look.scope, look.columns, place, look.terms, now, memory)
                found += [] if offer is None else [offer]
    return sorted(found)


@settings(max_examples=60, deadline=None)
@given(pools())
def test_offers_come_in_the_order_of_a_full_sort(drawn: tuple[list[Look], TargetMemory]) -> None:
    looks, memory = drawn
    ranking = Ranking(looks, NOW, memory)
    found = list(ranking)
    assert found == everything(looks, memory)
    assert ranking.exhausted
    assert {look.scope for look in looks if look.offered} == {offer.scope for offer in found}


@settings(max_examples=120, deadline=None)
@given(pools(), st.sampled_from((ALONE, RENEWED)), st.sampled_from((0, 30_000, 70_000, 130_000)))
def test_renewals_come_in_the_order_of_a_full_sort(
    drawn: tuple[list[Look], TargetMemory], now: PoolNow, later_ms: int
) -> None:
    """Notes of an earlier tick hold: what they leave out is worth nothing yet."""
    looks, memory = drawn
    list(Ranking(looks, now, memory))
    now = now._replace(at_ms=now.at_ms + later_ms)
    expected = everything([replace(look, columns=bare(look.columns)) for look in looks], memory, now)
    assert list(Ranking(looks, now, memory)) == expected


@settings(max_examples=40, deadline=None)
@given(pools(), st.integers(1, 3))
def test_a_scope_that_is_closed_gives_nothing_more_and_the_others_all(
    drawn: tuple[list[Look], TargetMemory], each: int
) -> None:
    looks, memory = drawn
    ranking = Ranking(looks, NOW, memory)
    taken: dict[str, int] = {}
    found = []
    for offer in ranking:
        found.append(offer)
        taken[offer.scope] = taken.get(offer.scope, 0) + 1
        if taken[offer.scope] == each:
            ranking.closed.add(offer.scope)
    expected, seen = [], dict.fromkeys((look.scope for look in looks), 0)
    for offer in everything(looks, memory):
        if seen[offer.scope] < each:
            expected.append(offer)
            seen[offer.scope] += 1
    assert found == expected


def test_only_what_may_be_taken_is_looked_at() -> None:
    memory = memory_of()
    count = 5_000
    columns = Columns(
        tuple(f"prefix:{place}" for place in range(count)),
        (ROOT,) * count,
        np.full(count, 0.001),
        np.linspace(1, 0.1, count),
        np.full(count, 500.0),
        np.full(count, NOW.at_ms),
        np.full(count, UNKNOWN_MS),
    )
    look = Look("s", columns, Terms(1, 9, NOW.at_ms, 16, 60_000, 120_000, 1.0))
    memory.on_residency("s", "prefix:1", "r1", 1, 1, NOW.at_ms + 9_000)
    memory.on_residency("s", "prefix:4000", "r1", 1, 1, NOW.at_ms + 1_000)
    first, second = [offer for offer, _ in zip(Ranking([look], NOW, memory), range(2), strict=False)]
    assert (first.key, second.key, second.missing) == ("prefix:0", "prefix:1", ("r2", "r3"))
    assert look.lapse_ms == NOW.at_ms + 9_000, "the last one was not looked at"


def test_what_is_noted_to_be_free_later_is_not_looked_at_before() -> None:
    memory = memory_of()
    columns = Columns(
        tuple(f"prefix:{place}" for place in range(4)),
        (ROOT,) * 4,
        np.full(4, 0.001),
        np.array([0.9, 0.8, 0.7, 0.6]),
        np.full(4, 500.0),
        np.full(4, NOW.at_ms),
        np.array([NOW.at_ms + 3_000, NOW.at_ms, FREE_MS, UNKNOWN_MS]),
    )
    look = Look("s", columns, Terms(1, 9, NOW.at_ms, 16, 60_000, 120_000, 1.0))
    memory.on_residency("s", "prefix:3", "r1", 1, 1, NOW.at_ms + 9_000)
    assert [offer.key for offer in Ranking([look], NOW, memory)] == ["prefix:1", "prefix:2", "prefix:3"]
    assert look.lapse_ms == NOW.at_ms + 3_000
    assert columns.free_ms.tolist() == [NOW.at_ms + 3_000, FREE_MS, FREE_MS, FREE_MS]


@settings(max_examples=60, deadline=None)
@given(pools())
def test_suppressed_is_what_a_look_finds_live_or_resident(drawn: tuple[list[Look], TargetMemory]) -> None:
    looks, memory = drawn
    count = suppressed(looks, NOW, memory)
    assert count == sum(
        not target.missing(ready, look.terms.soon_ms)
        or len(ready.names) - len(target.missing(ready, look.terms.soon_ms)) >= look.terms.copies
        for look in looks
        for key, tokens in zip(look.columns.keys, look.columns.tokens, strict=True)
        if (target := memory.get(look.scope, key)) is not None and (ready := NOW.ready.fitting(tokens)).names
    )
    assert suppressed(looks, NOW, memory) == count, "the notes say the same"
