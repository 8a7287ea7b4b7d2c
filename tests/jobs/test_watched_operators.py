"""The operators of watched scopes: sessions and managed prompts, from records to commands, over a restart anywhere."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from analytics.envelopes import Tag, body_of, key_of, seal, tag_of
from jobs.operators.ingest import IngestOperator
from jobs.operators.plan import PlanOperator
from jobs.operators.prompts import PromptsOperator
from jobs.operators.session import SessionOperator
from jobs.operators.tags import PROMPTED, TURNS
from jobs.settings import JobSettings
from schemas import (
    Pattern,
    Prefix,
    PromptRef,
    ReplicaSample,
    RequestEvent,
    RewardEvent,
    Segment,
    WarmupCommand,
    decode,
    encode,
)
from schemas.canonical import h128, query_sha256, segment_hash
from tests.jobs.flink_stand_in import Backend, Context, Plain

START_MS = 1_796_000_000_000
WATCHED = {"pattern_scopes": ["default"], "prompt_scopes": ["default"], "bundle_records": 1}
CONFIG = JobSettings.model_validate({"warmup": WATCHED}).to_json()


def opened(operator: Any, backend: Backend) -> Any:
    operator.open(backend)
    return Plain(operator)


def segments(*contents: str) -> tuple[Segment, ...]:
    parent, found = h128("root"), []
    for index, content in enumerate(contents):
        parent = segment_hash(parent, "user", content)
        found.append(Segment(parent, 100, "system" if index == 0 else "user"))
    return tuple(found)


def record(index: int, text: str, *contents: str, session: str = "s1", **more: Any) -> bytes:
    at = START_MS + index * 1_000
    fields: dict[str, Any] = {"phase": "started", "occurred_at_ms": at, **more}
    return encode(
        RequestEvent(
            event_id=f"e{session}{index}{fields['phase']}",
            request_id=f"r{session}{index}",
            tenant="t",
            session=session,
            pool="gpu",
            model="m",
            query=text,
            segments=segments(*contents),
            **fields,
        )
    )


def sides(operator: Any, value: bytes, at_ms: int, tag: Any) -> list[bytes]:
    """What leaves ingest by one side output."""
    out = operator.process_element(value, Context(Backend(), watermark_ms=at_ms))
    return [entry[1] for entry in out if isinstance(entry, tuple) and entry[0] is tag]


def planned(envelopes: list[bytes], ticks: int = 0) -> list[bytes]:
    """What plan says to them, with one ready replica."""
    backend = Backend()
    plan = opened(PlanOperator(CONFIG), backend)
    now_ms = START_MS + 10_000
    sample = ReplicaSample(replica="r0", pool="gpu", incarnation="1", sampled_at_ms=now_ms, state="ready")
    out: list[bytes] = []
    due: set[int] = set()
    for envelope in [seal(Tag.CONTROL, "gpu", encode(sample)), *envelopes]:
        context = Context(backend, key_of(envelope), now_ms, now_ms)
        out += plan.process_element(envelope, context)
        due |= set(context.event_timers)
    for at in sorted(due)[:ticks]:
        out += plan.on_timer(at, Context(backend, "gpu", at, at))
    return out


def commands(envelopes: list[bytes]) -> list[WarmupCommand]:
    return [decode(body_of(envelope), WarmupCommand) for envelope in envelopes if tag_of(envelope) == Tag.COMMAND]


@pytest.mark.parametrize("die", [False, True])
def test_three_like_prompts_of_a_session_become_a_command_of_the_fast_lane(die: bool) -> None:
    ingest, backend = opened(IngestOperator(CONFIG), Backend()), Backend()
    session = opened(SessionOperator(CONFIG), backend)
    found: list[bytes] = []
    talk = ["sys", "u1", "a1", "u2", "a2", "u3"]
    for index, length in enumerate((2, 4, 6)):
        value = record(index, "please try that again", *talk[:length])
        stranger = record(index, "please try that again", *talk[:length], session=f"other{index}")
        for turn in [*sides(ingest, value, START_MS, TURNS), *sides(ingest, stranger, START_MS, TURNS)]:
            if die:
                session = opened(SessionOperator(CONFIG), backend)
            found += session.process_element(turn, Context(backend, key_of(turn), START_MS))
    assert Counter(map(tag_of, found)) == {Tag.FEATURES: 6, Tag.PATTERN: 1}
    out = planned(found)
    (command,) = commands(out)
    assert isinstance(command.target, Prefix)
    assert command.target.segments == tuple(Segment(s.hash, s.tokens, s.role) for s in segments(*talk))
    assert (command.lane, command.reason.trigger) == ("fast", "consecutive_prompts")
    (insight,) = [decode(body_of(envelope), Pattern) for envelope in out if tag_of(envelope) == Tag.INSIGHT]
    assert (insight.scope, insight.pool, insight.state) == ("default", "gpu", 201)


def test_a_session_that_is_over_leaves_no_state() -> None:
    ingest, backend = opened(IngestOperator(CONFIG), Backend()), Backend()
    session = opened(SessionOperator(CONFIG), backend)
    (turn,) = sides(ingest, record(0, "hello"), START_MS, TURNS)
    context = Context(backend, key_of(turn), START_MS)
    session.process_element(turn, context)
    (due,) = context.event_timers
    session.on_timer(due, Context(backend, key_of(turn), due))
    assert session._live == {}
    assert session._live._store.items() == []
    assert session._live.marker_state.keys() == []


@pytest.mark.parametrize("die", [False, True])
def test_uses_of_a_managed_prompt_and_an_adopted_answer_reach_the_plan(die: bool) -> None:
    ingest, backend = opened(IngestOperator(CONFIG), Backend()), Backend()
    prompts = opened(PromptsOperator(CONFIG), backend)
    values = [
        record(
            index,
            f"question {index}",
            "sys",
            f"question {index}",
            phase="finished",
            completed_at_ms=START_MS + index * 1_000,
            prompt=PromptRef("faq", "3"),
            status=200,
            finish_reason="stop",
        )
        for index in range(2)
    ]
    values.append(
        encode(
            RewardEvent(
                event_id="w",
                occurred_at_ms=START_MS + 3_000,
                tenant="t",
                query_sha256=query_sha256("question 1"),
                reward=1.0,
                source="adopted",
                reward_model_version="1",
            )
        )
    )
    due: dict[tuple[str, int], None] = {}
    for value in values:
        for envelope in sides(ingest, value, START_MS, PROMPTED):
            if die:
                prompts = opened(PromptsOperator(CONFIG), backend)
            context = Context(backend, key_of(envelope), START_MS)
            assert prompts.process_element(envelope, context) == []
            due |= dict.fromkeys((key_of(envelope), at) for at in context.event_timers)
    told: list[bytes] = []
    for key, at in sorted(due):
        if die:
            prompts = opened(PromptsOperator(CONFIG), backend)
        told += prompts.on_timer(at, Context(backend, key, at))
    (command,) = commands(planned(told, ticks=1))
    assert command.reason.trigger == "managed_prompt"
    assert command.reason.evidence["hotness"] == pytest.approx(1 + 2 * 0.5 + 0.3)
    assert isinstance(command.target, Prefix)
    assert [segment.hash for segment in command.target.segments] == [segments("sys")[0].hash]


def test_scopes_that_did_not_ask_have_nothing_but_their_fact() -> None:
    ingest = opened(IngestOperator(JobSettings.model_validate({"warmup": {"bundle_records": 1}}).to_json()), Backend())
    value = record(0, "hello", "sys", prompt=PromptRef("faq", "3"))
    (fact,) = ingest.process_element(value, Context(Backend(), watermark_ms=START_MS))
    assert isinstance(fact, bytes)
