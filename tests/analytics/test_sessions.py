"""Prompts of a session, as an operator hears them: in whatever phase and order, over any crash."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from analytics import facts
from analytics.envelopes import Tag, key_of, open_as, tag_of
from analytics.patterns import packed_sketch
from analytics.request_features import SessionFeatures
from analytics.sessions import Session, SessionConfig
from analytics.stores import MemoryMapStore
from analytics.turns import SessionPattern, Turn
from tests.analytics.shard_script import START_MS, chain

PAUSE_MS = 600_000


def turn(at: int, text: str, *contents: str, identity: int | None = None, adapter: str = "", pool: str = "p") -> Turn:
    words, distinct = packed_sketch(text)
    names = facts.pack_names("s", pool, "m", adapter, "t")
    made = at if identity is None else identity
    return Turn("s", "f" * 32, made, START_MS + at, names, facts.pack_chain(chain(*contents)), words, distinct)


def heard(session: Session, *turns: Turn) -> list[SessionPattern]:
    out = [envelope for each in turns for envelope in session.on_turn(each)]
    assert all(tag_of(envelope) in (Tag.PATTERN, Tag.FEATURES) and key_of(envelope) == "p" for envelope in out)
    return [open_as(envelope, SessionPattern) for envelope in out if tag_of(envelope) == Tag.PATTERN]


def test_the_third_like_prompt_of_a_conversation_asks_for_all_of_it() -> None:
    session = Session(SessionConfig(), MemoryMapStore())
    talk = ["sys", "u1", "a1", "u2", "a2", "u3"]
    found = heard(
        session,
        turn(0, "please try again now", *talk[:2]),
        turn(4_000, "please try again now", *talk[:4]),
        turn(10_000, "Please try again now", *talk),
    )
    assert len(found) == 1
    pattern = found[0]
    assert (pattern.scope, pattern.pool, pattern.at_ms, pattern.known) == ("s", "p", START_MS + 10_000, False)
    assert pattern.hashes == b"".join(bytes.fromhex(segment.hash) for segment in chain(*talk))
    assert pattern.tokens == tuple(len(content) for content in talk)
    assert pattern.similarity == 1.0
    assert pattern.qps == pytest.approx(2 / 10)  # two gaps in ten seconds
    assert (pattern.root.model, pattern.root.template_sha) == ("m", "t")


def test_prompts_that_do_not_build_on_each_other_share_what_they_begin_with() -> None:
    session = Session(SessionConfig(), MemoryMapStore())
    text = "one two three four five six seven"
    (pattern,) = heard(session, *(turn(i * 1000, text, "sys", "tools", f"u{i}") for i in range(3)))
    assert len(pattern.hashes) == 2 * 16
    assert pattern.tokens == (3, 5)


def test_a_pattern_that_goes_on_is_known_and_one_after_a_break_is_new() -> None:
    session = Session(SessionConfig(), MemoryMapStore())
    texts = ["again"] * 4 + ["something else"] + ["again"] * 3
    found = heard(session, *(turn(i * 1000, text, "sys") for i, text in enumerate(texts)))
    assert [(pattern.at_ms - START_MS, pattern.known) for pattern in found] == [
        (2_000, False),
        (3_000, True),
        (7_000, False),
    ]


def test_both_phases_of_a_request_are_one_prompt() -> None:
    session = Session(SessionConfig(), MemoryMapStore())
    twice = [turn(i * 1000, "again", "sys", identity=i) for i in (0, 1) for _ in range(2)]
    assert heard(session, *twice) == []
    assert len(heard(session, turn(2_000, "again", "sys", identity=2))) == 1


def test_each_prompt_tells_once_what_the_last_ones_were_like_with_the_latencies_known_by_then() -> None:
    session = Session(SessionConfig(), MemoryMapStore())
    first, second = turn(0, "a", "sys", identity=0), turn(1_000, "b", "sys", identity=1)
    told = []
    for each in (first, structs.replace(first, latency_ms=400.0), second, structs.replace(second, latency_ms=100.0)):
        told += [open_as(envelope, SessionFeatures) for envelope in session.on_turn(each)]
    assert [(each.scope, each.at_ms, each.features.latency_ms) for each in told] == [
        ("s", START_MS, None),
        ("s", START_MS + 1_000, pytest.approx(400.0)),
    ]
    (last,) = session.on_turn(turn(2_000, "c", "sys", identity=2))
    assert open_as(last, SessionFeatures).features.latency_ms == pytest.approx(200.0)
    assert session.on_turn(structs.replace(first, latency_ms=9.0)) == []


def test_a_prompt_that_comes_late_takes_its_place_and_one_before_all_is_over() -> None:
    session = Session(SessionConfig(), MemoryMapStore())
    found = heard(session, turn(1_000, "a b"), turn(3_000, "a b"), turn(2_000, "x y"))
    assert found == []  # in order: a b, x y, a b
    assert heard(session, turn(500, "a b")) == []
    assert len(heard(session, turn(4_000, "a b"), turn(5_000, "a b"))) == 1


def test_prompts_of_two_renderings_share_no_prefix() -> None:
    session = Session(SessionConfig(), MemoryMapStore())
    (pattern,) = heard(
        session, turn(0, "again", "sys"), turn(1, "again", "sys", adapter="a@1"), turn(2, "again", "sys", adapter="a@1")
    )
    assert (pattern.hashes, pattern.tokens) == (b"", ())


def test_after_a_pause_a_session_starts_anew_and_a_quiet_one_leaves_nothing() -> None:
    store = MemoryMapStore()
    session = Session(SessionConfig(), store)
    heard(session, turn(0, "again"), turn(1_000, "again"))
    assert heard(session, turn(1_000 + PAUSE_MS + 1, "again")) == []
    assert session.next_timer_ms == START_MS + PAUSE_MS
    session.on_timer(START_MS + PAUSE_MS)
    assert session.next_timer_ms == START_MS + 1_001 + 2 * PAUSE_MS
    session.on_timer(START_MS + 1_001 + 2 * PAUSE_MS)
    assert session.next_timer_ms is None
    assert store.records == {}


def test_no_word_of_a_prompt_is_kept() -> None:
    store = MemoryMapStore()
    heard(Session(SessionConfig(), store), turn(0, "supercalifragilistic expialidocious"))
    kept = b"".join(store.records.values())
    assert b"supercali" not in kept
    assert b"expiali" not in kept


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from(["again", "again", "other"]), st.integers(0, 30)), max_size=25
    ),
    st.sets(st.integers(0, 25)),
)
def test_a_session_rebuilt_anywhere_says_the_same(script: list[tuple[int, str, int]], crashes: set[int]) -> None:
    def run(crashes: set[int]) -> list[bytes]:
        store, out = MemoryMapStore(), []
        session = Session(SessionConfig(pause_ms=15_000), store)
        clock = 0
        for index, (step, text, identity) in enumerate(script):
            if index in crashes:
                items = list(store.records.items())
                random.Random(index).shuffle(items)
                store = MemoryMapStore()
                store.records = dict(items)
                session = Session(SessionConfig(pause_ms=15_000), store)
            clock += step * 100
            while session.next_timer_ms is not None and session.next_timer_ms <= START_MS + clock:
                session.on_timer(session.next_timer_ms)
            out += session.on_turn(turn(clock - identity * 10, text, "sys", text, identity=identity))
        return [*out, *(key.encode() + blob for key, blob in sorted(store.records.items()))]

    assert run(crashes) == run(set())
