"""What a record tells of answers and rewards, in the facts that ingest makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from analytics.facts import HEAD, SOURCES, Answer, Flag, Kind, read_answer, read_text
from analytics.ingest import Ingest, IngestConfig
from analytics.scopes import ScopeMap
from schemas import CacheReport, RequestEvent, RewardEvent, encode
from schemas.canonical import h128, query_sha256

AT_MS = 1_700_000_000_000
RESPONSE = h128("an answer")


def finished(**changes: Any) -> RequestEvent:
    fields: dict[str, Any] = {
        "event_id": "e",
        "request_id": "r",
        "phase": "finished",
        "occurred_at_ms": AT_MS,
        "completed_at_ms": AT_MS,
        "tenant": "acme",
        "pool": "gpu",
        "model": "m",
        "query": "Wo ist meine  Straße?",
        "status": 200,
        "finish_reason": "stop",
        "response_sha256": RESPONSE,
        "response_ref": RESPONSE,
    }
    return RequestEvent(**{**fields, **changes})


def fact_of(record: RequestEvent | RewardEvent, **config: Any) -> bytes:
    fact = Ingest(IngestConfig(**config)).on_record(encode(record), AT_MS).fact
    assert fact is not None
    return fact


def flags_of(fact: bytes) -> int:
    return int(HEAD.unpack_from(fact)[2])


def test_an_answer_stands_behind_the_text_and_neither_is_kept_by_the_panes():
    event = finished(domain="news", cache=CacheReport(semantic_version="v3"))
    fact = fact_of(event)
    kept = HEAD.unpack_from(fact)[-1]
    assert read_answer(fact) == Answer(bytes.fromhex(RESPONSE), RESPONSE, "news", "stop", 200, "v3")
    assert read_text(fact, flags_of(fact), kept) == "Wo ist meine Straße?"
    bare = fact_of(finished(response_sha256=None, response_ref=None))
    assert len(bare) < len(fact)
    assert bare[HEAD.size : kept] == fact[HEAD.size : kept]


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": "started", "domain": "news"},
        {"origin": "warmup", "domain": "news"},
        {"origin": "eval"},
        {"response_sha256": None, "response_ref": None},
    ],
)
def test_what_tells_nothing_of_an_answer_that_counts_pays_for_none(changes):
    fact = fact_of(finished(**changes))
    assert not flags_of(fact) & Flag.ANSWER
    assert read_text(fact, flags_of(fact), HEAD.unpack_from(fact)[-1]) == "Wo ist meine Straße?"


@pytest.mark.parametrize("ref", ["s3://bucket/answer", RESPONSE.upper(), RESPONSE[:-1], RESPONSE + "0"])
def test_a_reference_that_is_no_blob_of_the_scope_is_left_out(ref):
    assert read_answer(fact_of(finished(response_ref=ref))).ref == ""


def test_a_withheld_text_leaves_the_answer_where_it_is():
    fact = fact_of(finished(query="[REDACTED]", query_sha256=query_sha256("secret")))
    assert read_text(fact, flags_of(fact), HEAD.unpack_from(fact)[-1]) == ""
    assert read_answer(fact).ref == RESPONSE


def reward(**changes: Any) -> RewardEvent:
    fields: dict[str, Any] = {
        "event_id": "j",
        "occurred_at_ms": AT_MS,
        "tenant": "acme",
        "query_sha256": query_sha256("Wo ist meine Straße?"),
        "reward": 0.123456,
        "source": "click",
        "reward_model_version": "1",
    }
    return RewardEvent(**{**fields, **changes})


def test_a_reward_names_its_answer_and_source_and_meets_its_request_in_one_shard():
    for response in (RESPONSE, None):
        fact = fact_of(reward(response_sha256=response))
        shard, kind, source, at_ms, _, _, query, micro, *_, kept = HEAD.unpack_from(fact)
        assert (kind, SOURCES[source], at_ms, micro) == (Kind.REWARD, "click", AT_MS, 123_456)
        assert fact[kept:] == (b"" if response is None else bytes.fromhex(RESPONSE))
        request = HEAD.unpack_from(fact_of(finished()))
        assert (shard, query) == (request[0], request[6])


def test_two_tenants_judgements_with_one_name_are_two_and_lie_in_their_own_scopes():
    scopes = ScopeMap(tenants={"acme": "one", "umbrella": "two"})
    ones, twos = (fact_of(reward(tenant=tenant), scopes=scopes) for tenant in ("acme", "umbrella"))
    assert HEAD.unpack_from(ones)[4] != HEAD.unpack_from(twos)[4]
    assert b"one" in ones
    assert b"two" in twos
