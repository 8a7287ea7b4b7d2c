"""Uses of managed prompts and judgements of their answers, in any order and over any crash."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from analytics import facts
from analytics.envelopes import Tag, key_of, open_as, tag_of
from analytics.prompt_usage import (
    Prompted,
    PromptUsage,
    PromptUsageConfig,
    PromptUse,
    answered,
    lead_of,
    prompt_id,
    shared_lead,
)
from analytics.stores import MemoryMapStore
from schemas import RequestEvent, Segment
from tests.analytics.shard_script import START_MS, chain, query

SLIDE_MS = 10_000
NAMES = facts.pack_names("s", "gpu", "m", "", "t")


def lead(*contents: str) -> bytes:
    return facts.pack_chain([Segment(each.hash, each.tokens, "system") for each in chain(*contents)])


def use(
    at: int, identity: int, asked: str = "q", prompt: str = "faq@3", good: bool = True, contents=("sys",)
) -> Prompted:
    return Prompted("s", prompt, query(asked), START_MS + at, identity, good, False, NAMES, lead(*contents))


def adopted(at: int, identity: int, asked: str = "q") -> Prompted:
    return Prompted("s", "", query(asked), START_MS + at, identity, False, True, b"", b"")


def shard(store: MemoryMapStore | None = None, **config: int) -> PromptUsage:
    return PromptUsage(PromptUsageConfig(**config), store or MemoryMapStore())


def slide(usage: PromptUsage) -> list[PromptUse]:
    assert usage.next_timer_ms is not None
    out = usage.on_timer(usage.next_timer_ms)
    assert all(tag_of(envelope) == Tag.PROMPTS and key_of(envelope) == "gpu" for envelope in out)
    return [open_as(envelope, PromptUse) for envelope in out]


def test_a_slide_tells_uses_good_answers_and_what_they_begin_with() -> None:
    usage = shard()
    usage.on_prompted(use(0, 1, "a", contents=("sys", "tools", "day 1")), 0)
    usage.on_prompted(use(10, 2, "b", good=False, contents=("sys", "tools", "day 2")), 0)
    (told,) = slide(usage)
    assert (told.scope, told.pool, told.prompt, told.at_ms) == ("s", "gpu", "faq@3", START_MS + 10)
    assert (told.uses, told.answered, told.adopted) == (2, 1, 0)
    assert told.hashes == b"".join(bytes.fromhex(segment.hash) for segment in chain("sys", "tools"))
    assert (told.tokens, told.root.model) == ((3, 5), "m")
    assert slide(usage) == []


def test_an_adopted_answer_finds_its_prompt_by_its_query_in_either_order() -> None:
    late, early = shard(), shard()
    late.on_prompted(use(0, 1), 0)
    slide(late)
    late.on_prompted(adopted(20_000, 9), 0)
    assert [(told.uses, told.adopted) for told in slide(late)] == [(0, 1)]
    early.on_prompted(adopted(0, 9), 0)
    assert slide(early) == []
    early.on_prompted(use(20_000, 1), 0)
    assert [(told.uses, told.adopted) for told in slide(early)] == [(1, 1)]


def test_a_repetition_is_counted_once() -> None:
    usage = shard()
    for message in (use(0, 1), use(0, 1), adopted(5, 9), adopted(5, 9)):
        usage.on_prompted(message, 0)
    assert [(told.uses, told.answered, told.adopted) for told in slide(usage)] == [(1, 1, 1)]


def test_another_query_s_judgement_is_not_this_prompt_s() -> None:
    usage = shard()
    usage.on_prompted(use(0, 1, "a"), 0)
    usage.on_prompted(adopted(5, 9, "b"), 0)
    assert [told.adopted for told in slide(usage)] == [0]


def test_what_waited_too_long_is_forgotten_and_a_quiet_shard_keeps_nothing() -> None:
    store = MemoryMapStore()
    usage = shard(store, wait_ms=30_000)
    usage.on_prompted(use(0, 1), 0)
    while usage.next_timer_ms is not None:
        slide(usage)
    assert store.records == {}
    usage.on_prompted(adopted(60_000, 9), 0)
    assert [told.adopted for told in slide(usage)] == []


def test_beyond_the_bound_the_longest_waiting_go_first() -> None:
    usage = shard(max_waiting=2)
    for index in range(4):
        usage.on_prompted(use(index, index, f"q{index}"), 0)
    slide(usage)
    for index in range(4):
        usage.on_prompted(adopted(20_000 + index, 100 + index, f"q{index}"), 0)
    assert [told.adopted for told in slide(usage)] == [2]


def test_a_user_s_own_words_are_no_part_of_a_prompt() -> None:
    first, second, third = chain("sys", "tools", "hello")
    packed = facts.pack_chain(
        [Segment(first.hash, 3, "system"), Segment(second.hash, 5, "developer"), Segment(third.hash, 5, "user")]
    )
    assert lead_of(packed) == facts.pack_chain([Segment(first.hash, 3, "system"), Segment(second.hash, 5, "developer")])
    assert lead_of(facts.pack_chain([third])) == b""
    assert lead_of(b"") == b""
    assert shared_lead(lead("sys", "a", "b"), lead("sys", "a", "c")) == lead("sys", "a")


def test_only_an_answer_as_expected_and_not_cut_short_counts() -> None:
    def finished(**changes: object) -> RequestEvent:
        fields: dict = {
            "event_id": "e",
            "request_id": "r",
            "phase": "finished",
            "occurred_at_ms": START_MS,
            "tenant": "t",
            "pool": "gpu",
            "model": "m",
            "status": 200,
            "finish_reason": "stop",
        }
        return RequestEvent(**{**fields, **changes})

    assert answered(finished())
    assert answered(finished(finish_reason="tool_calls", status=0))
    for wrong in ({"finish_reason": "length"}, {"finish_reason": None}, {"status": 500}, {"error_type": "timeout"}):
        assert not answered(finished(**wrong))
    assert not answered(finished(phase="started"))


def test_a_prompt_s_id_fits_into_every_message() -> None:
    assert prompt_id("faq", "3") == "faq@3"
    assert len(prompt_id("n" * 250, "v" * 250)) == 32


messages = st.one_of(
    st.builds(
        lambda at, who, asked, prompt, good, contents: use(at, who, asked, prompt, good, contents),
        st.integers(0, 60_000),
        st.integers(1, 12),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["faq@3", "faq@4"]),
        st.booleans(),
        st.sampled_from([("sys",), ("sys", "x"), ("other",)]),
    ),
    st.builds(adopted, st.integers(0, 60_000), st.integers(1, 6), st.sampled_from(["a", "b", "c"])),
    st.none(),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(messages, max_size=30), st.sets(st.integers(0, 30)))
def test_a_shard_rebuilt_anywhere_says_the_same(script: list[Prompted | None], crashes: set[int]) -> None:
    def run(crashes: set[int]) -> list[bytes]:
        store, out = MemoryMapStore(), []
        usage = shard(store, wait_ms=40_000, max_waiting=2)
        for index, message in enumerate(script):
            if index in crashes:
                items = list(store.records.items())
                random.Random(index).shuffle(items)
                store = MemoryMapStore()
                store.records = dict(items)
                usage = shard(store, wait_ms=40_000, max_waiting=2)
            if message is not None:
                usage.on_prompted(message, 0)
            elif usage.next_timer_ms is not None:
                out += usage.on_timer(usage.next_timer_ms)
        return [*out, *(key.encode() + blob for key, blob in sorted(store.records.items()))]

    assert run(crashes) == run(set())
