"""What ingest tells beyond the fact: only for scopes that asked, and never a word of a prompt."""

from __future__ import annotations

from typing import Any

from analytics.envelopes import Tag, key_of, open_as, tag_of
from analytics.facts import shard_of, unpack_names
from analytics.ingest import Ingest, IngestConfig
from analytics.patterns import Sketch, sketch_of
from analytics.prompt_usage import Prompted, lead_of
from analytics.scopes import ScopeMap
from analytics.turns import Turn
from analytics.watching import WatchConfig
from schemas import PromptRef, RewardEvent, Segment, encode
from schemas.canonical import query_sha256
from tests.analytics.shard_script import chain
from tests.analytics.test_ingest import AT_MS, Head, event

SCOPES = ScopeMap(tenants={"acme": "shop", "other": "news"})


def watched(record: Any, patterns: tuple[str, ...] = (), prompts: tuple[str, ...] = ()) -> tuple[bytes, ...]:
    watch = WatchConfig(frozenset(patterns), frozenset(prompts))
    return Ingest(IngestConfig(scopes=SCOPES, watch=watch)).on_record(encode(record), AT_MS).watched


def test_a_prompt_of_a_session_becomes_a_turn_without_its_words() -> None:
    record = event(session="s1", query="Where is my SUPERSECRET card", segments=tuple(chain("a", "bb")))
    (envelope,) = watched(record, patterns=("shop",))
    assert tag_of(envelope) == Tag.TURN
    assert b"supersecret" not in envelope.lower()
    turn = open_as(envelope, Turn)
    assert key_of(envelope) == turn.subject
    assert (turn.scope, turn.arrived_ms, unpack_names(turn.names).pool) == ("shop", AT_MS, "gpu")
    whole = Ingest(IngestConfig(scopes=SCOPES)).on_record(encode(record), AT_MS)
    assert (turn.identity, turn.chain) == (Head(whole).identity, Head(whole).chain)
    expected = sketch_of("where is my supersecret card", bytes.fromhex(turn.subject))
    assert Sketch.unpack(turn.words, turn.distinct) == expected


def test_a_finished_prompt_tells_its_length_and_latency() -> None:
    started = event(session="s1", input_tokens=70)
    finished = event(session="s1", input_tokens=70, phase="finished", completed_at_ms=AT_MS, latency_ms=250.0)
    turns = [open_as(watched(record, ("*",))[0], Turn) for record in (started, finished)]
    assert [(turn.tokens, turn.latency_ms) for turn in turns] == [(70, 0.0), (70, 250.0)]


def test_only_scopes_that_asked_are_watched() -> None:
    record = event(session="s1", prompt=PromptRef("faq", "3"), phase="finished", completed_at_ms=AT_MS)
    assert watched(record) == ()
    assert watched(record, patterns=("news",), prompts=("news",)) == ()
    assert [tag_of(e) for e in watched(record, ("*",), ("*",))] == [Tag.TURN, Tag.PROMPTED]
    assert [tag_of(e) for e in watched(record, ("shop",), ("news",))] == [Tag.TURN]


def test_one_who_is_nobody_and_a_withheld_text_make_no_turn() -> None:
    assert watched(event(session=None, user=None), ("*",)) == ()
    assert watched(event(session="s", query="[REDACTED]"), ("*",)) == ()
    assert watched(event(session="s", query=None), ("*",)) == ()
    assert watched(event(session="s", origin="warmup"), ("*",)) == ()


def test_a_user_stands_in_for_a_session_and_is_another_subject_than_a_session_of_that_name() -> None:
    (user,) = watched(event(session=None, user="u"), ("*",))
    (session,) = watched(event(session="u", user="x"), ("*",))
    (elsewhere,) = watched(event(session="u", user="x", tenant="other"), ("*",))
    assert len({key_of(user), key_of(session), key_of(elsewhere)}) == 3


def test_a_long_prompt_has_a_turn_although_its_text_is_too_long_for_a_fact() -> None:
    text = " ".join(f"word{index}" for index in range(1000))
    (envelope,) = watched(event(session="s", query=text), ("*",))
    turn = open_as(envelope, Turn)
    assert (turn.distinct, len(turn.words)) == (1000, 128 * 4)


def test_a_finished_request_of_a_managed_prompt_is_told_with_what_stands_before_the_users_words() -> None:
    first, second = chain("sys", "hello")
    segments = (Segment(first.hash, 3, "system"), Segment(second.hash, 5, "user"))
    record = event(
        phase="finished",
        completed_at_ms=AT_MS + 5,
        prompt=PromptRef("faq", "3"),
        finish_reason="stop",
        status=200,
        segments=segments,
    )
    (envelope,) = watched(record, prompts=("shop",))
    use = open_as(envelope, Prompted)
    whole = Ingest(IngestConfig(scopes=SCOPES)).on_record(encode(record), AT_MS)
    assert whole.fact is not None
    assert key_of(envelope) == str(shard_of(whole.fact))
    assert (use.scope, use.prompt, use.at_ms, use.answered, use.adopted) == ("shop", "faq@3", AT_MS + 5, True, False)
    assert use.query.hex() == query_sha256("Where is my card?")
    assert use.chain == lead_of(Head(whole).chain)
    assert watched(event(prompt=PromptRef("faq", "3")), prompts=("shop",)) == ()  # it has only started


def test_an_adopted_answer_goes_to_the_shard_of_its_query() -> None:
    def reward(**changes: Any) -> RewardEvent:
        fields: dict[str, Any] = {
            "event_id": "w1",
            "occurred_at_ms": AT_MS,
            "tenant": "acme",
            "query_sha256": query_sha256("Where is my card?"),
            "reward": 1.0,
            "source": "adopted",
            "reward_model_version": "1",
        }
        return RewardEvent(**{**fields, **changes})

    (envelope,) = watched(reward(), prompts=("shop",))
    (use,) = watched(event(phase="finished", completed_at_ms=AT_MS, prompt=PromptRef("faq", "3")), prompts=("shop",))
    assert key_of(envelope) == key_of(use)
    assert open_as(envelope, Prompted).adopted
    assert watched(reward(source="click"), prompts=("shop",)) == ()
    assert watched(reward(reward=0.0), prompts=("shop",)) == ()
    assert watched(reward()) == ()
