"""What a shard tells of who asked: sorted, cut out of facts, bounded, and only of scopes that look for crowds."""

from __future__ import annotations

import random

import numpy as np

from analytics.asked import ROW_BYTES, Asked, PendingAsked, row_bytes
from analytics.asked_panes import AskedPanes
from analytics.facts import HEAD, unpack_names
from analytics.records import Section
from analytics.stores import MemoryMapStore
from tests.analytics.shard_script import CHAINS, START_MS, query, request


def tell(found: PendingAsked, fact: bytes) -> None:
    size, segments = HEAD.unpack_from(fact)[8:10]
    names = unpack_names(fact[HEAD.size : HEAD.size + size])
    found.asking((names.scope, names.pool, names.template, names.adapter), HEAD.size + size).add(fact, segments)


def pending(facts: list[bytes], leads: int = 0) -> PendingAsked:
    found = PendingAsked(leads)
    for fact in facts:
        tell(found, fact)
    return found


def drained(held: PendingAsked, max_rows: int = 1_000, wanted: str = "ab") -> list[Asked]:
    return list(held.drain(START_MS, 10_000, max_rows, wanted.__contains__))


def facts() -> list[bytes]:
    return [
        request(START_MS + 700 * number, number + 1, f"q{number % 3}", user=number % 4, scope="ab"[number % 2],
                template="t" * (number % 2), pool="pr"[number % 5 == 0])
        for number in range(40)
    ]  # fmt: skip


def test_the_order_of_events_does_not_show() -> None:
    shuffled = facts()
    random.Random(1).shuffle(shuffled)
    one, other = pending(facts()), pending(shuffled)
    told = drained(one)
    assert told == drained(other)
    assert [(asked.scope, asked.pane) for asked in told] == sorted((asked.scope, asked.pane) for asked in told)
    assert drained(one) == []


def test_rows_are_read_back_as_columns() -> None:
    panes = AskedPanes(1_000, Section(MemoryMapStore(), "e"))
    fact = request(START_MS + 5, 77, "asked", user=(1 << 64) - 3, template="v1")
    (asked,) = drained(pending([fact, request(START_MS + 9, 78, "other", user=0)]))
    panes.add(asked)
    column = panes.column("query", asked.pane)
    by_key = {column.keys[which]: place for place, which in enumerate(column.which.tolist())}
    assert column.at_ms[by_key[query("asked")]] == START_MS + 5
    assert column.users[by_key[query("asked")]] == -3
    assert column.users[by_key[query("other")]] == 78, "nobody is a user of his own"
    assert column.anonymous == 1
    named = panes.column("template", asked.pane)
    assert (named.keys, named.which.tolist(), named.at_ms.tolist()) == ([b"v1"], [0], [START_MS + 5])
    assert len(panes.column("adapter", asked.pane).at_ms) == 0
    assert column.users.dtype == np.int64


def test_what_is_too_much_is_dropped_from_the_end_and_counted() -> None:
    told = drained(pending(facts()), 5, "a")
    whole = drained(pending(facts()), wanted="a")
    assert {asked.scope for asked in told} == {"a"}
    for short, full in zip(told, whole, strict=True):
        assert rows(short) == rows(full)[:5]
        assert short.dropped == max(0, len(rows(full)) - 5)


def rows(asked: Asked) -> list[bytes]:
    joined = [group.rows for group in asked.groups]
    return sorted(own[at : at + ROW_BYTES] for own in joined for at in range(0, len(own), ROW_BYTES))


def test_requests_tell_the_hashes_of_their_leading_segments() -> None:
    facts = [request(START_MS + at, at + 1, segments=CHAINS[at]) for at in range(5)]
    (asked,) = drained(pending(facts, leads=2), wanted="a")
    assert [(group.leads, len(group.rows) // row_bytes(group.leads)) for group in asked.groups] == [(0, 1), (2, 4)]
    panes = AskedPanes(1_000, Section(MemoryMapStore(), "e"))
    panes.add(asked)
    led = panes.led(asked.pane)
    told = {at - START_MS: bytes(each) for at, each in zip(led.rows["at_ms"].tolist(), led.hashes, strict=True)}
    for at, chain in enumerate(CHAINS[1:], 1):
        assert told[at] == b"".join(bytes.fromhex(segment.hash) for segment in chain[:2]).ljust(32, b"\0")
    assert (led.marks == 0).sum() == 1, "only the second segment of the shortest prompt is not there"
    # Queries are read from both kinds of rows.
    assert sorted(panes.column("query", asked.pane).at_ms.tolist()) == [START_MS + at for at in range(5)]


def test_shards_may_tell_of_different_numbers_of_segments() -> None:
    panes = AskedPanes(1_000, Section(MemoryMapStore(), "e"))
    for leads in (3, 0, 1):
        for asked in drained(pending([request(START_MS, 1 + leads, segments=CHAINS[3])], leads), wanted="a"):
            panes.add(asked)
    led = panes.led(asked.pane)
    assert (led.marks != 0).sum(axis=1).tolist() == [1, 3]
    assert led.hashes[0, 0] == led.hashes[1, 0]
    assert len(panes.column("query", asked.pane).users) == 3


def test_a_list_is_the_same_until_nobody_holds_it() -> None:
    held = pending(facts())
    mine = held.asking(("a", "p", "t", ""), 0)
    drained(held)
    assert held.asking(("a", "p", "t", ""), 0).bare is mine.bare
    mine.add(facts()[0], 0)
    held.forget()
    assert held.asking(("a", "p", "t", ""), 0).bare is mine.bare
    assert len(drained(held)) == 1
