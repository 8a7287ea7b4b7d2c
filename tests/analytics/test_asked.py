"""What a shard tells of who asked: sorted, cut out of facts, bounded, and only of scopes that look for crowds."""

from __future__ import annotations

import random

import numpy as np

from analytics.asked import ROW_BYTES, Asked, PendingAsked
from analytics.asked_panes import AskedPanes
from analytics.facts import HEAD
from analytics.records import Section
from analytics.stores import MemoryMapStore
from tests.analytics.shard_script import START_MS, query, request


def pending(facts: list[bytes]) -> PendingAsked:
    found = PendingAsked()
    for fact in facts:
        at_ms, names_bytes = HEAD.unpack_from(fact)[3], HEAD.unpack_from(fact)[8]
        found.add(at_ms // 10_000, fact[HEAD.size : HEAD.size + names_bytes], fact)
    return found


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
    told = list(one.drain(START_MS, 1_000, lambda _: True))
    assert told == list(other.drain(START_MS, 1_000, lambda _: True))
    assert [(asked.scope, asked.pane) for asked in told] == sorted((asked.scope, asked.pane) for asked in told)
    assert list(one.drain(START_MS, 1_000, lambda _: True)) == []


def test_rows_are_read_back_as_columns() -> None:
    panes = AskedPanes(1_000, Section(MemoryMapStore(), "e"))
    fact = request(START_MS + 5, 77, "asked", user=(1 << 64) - 3, template="v1")
    (asked,) = pending([fact, request(START_MS + 9, 78, "other", user=0)]).drain(START_MS, 9, lambda _: True)
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
    told: list[Asked] = list(pending(facts()).drain(START_MS, 5, lambda scope: scope == "a"))
    whole: list[Asked] = list(pending(facts()).drain(START_MS, 1_000, lambda scope: scope == "a"))
    assert {asked.scope for asked in told} == {"a"}
    for short, full in zip(told, whole, strict=True):
        assert rows(short) == rows(full)[:5]
        assert short.dropped == max(0, len(rows(full)) - 5)


def rows(asked: Asked) -> list[bytes]:
    joined = [group.rows for group in asked.groups]
    return sorted(own[at : at + ROW_BYTES] for own in joined for at in range(0, len(own), ROW_BYTES))
