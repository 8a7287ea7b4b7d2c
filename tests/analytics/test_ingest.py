"""Records of every kind of quality through ingest: a fact, a control envelope or a dead letter, never an exception."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.envelopes import Tag, body_of, key_of, tag_of
from analytics.facts import HEAD, Flag, Kind, pack_chain, shard_for, shard_of, unpack_chain, unpack_names
from analytics.ingest import Ingest, IngestConfig, Ingested
from analytics.scopes import ScopeMap
from schemas import (
    DeadLetter,
    DeadReason,
    PromptRef,
    Render,
    ReplicaSample,
    RequestEvent,
    Residency,
    RewardEvent,
    Segment,
    decode,
    encode,
)
from schemas.canonical import h128, query_sha256
from tests.analytics.shard_script import chain

AT_MS = 1_700_000_000_000


def event(**changes: Any) -> RequestEvent:
    fields: dict[str, Any] = {
        "event_id": "e1",
        "request_id": "r1",
        "phase": "started",
        "occurred_at_ms": AT_MS,
        "tenant": "acme",
        "user": "u1",
        "pool": "gpu",
        "model": "m",
        "query": "Where is  my card?",
    }
    return RequestEvent(**{**fields, **changes})


def take(record: RequestEvent | RewardEvent | bytes, record_ms: int = AT_MS, **config: Any) -> Ingested:
    value = record if isinstance(record, bytes) else encode(record)
    return Ingest(IngestConfig(**config)).on_record(value, record_ms)


class Head:
    """A fact's head with names."""

    def __init__(self, ingested: Ingested) -> None:
        assert ingested.fact is not None
        fact = ingested.fact
        head = HEAD.unpack_from(fact)
        self.shard, self.kind, self.flags, self.at_ms, self.identity, self.user, self.query, self.weight = head[:8]
        names_bytes, self.segments, kept = head[8:]
        self.names = unpack_names(fact[HEAD.size : HEAD.size + names_bytes]) if names_bytes else None
        self.chain = fact[HEAD.size + names_bytes : kept]
        self.text = fact[kept:].decode()


def letter(ingested: Ingested) -> DeadLetter:
    assert ingested.dead is not None
    return decode(ingested.dead, DeadLetter)


def test_a_request_becomes_a_fact_with_everything_that_demand_needs() -> None:
    segments = tuple(chain("a", "bb"))
    head = Head(
        take(
            event(
                segments=segments,
                sample_weight=2.5,
                adapter="x",
                render=Render("t", "u", "s"),
                prompt=PromptRef("p", "1"),
            ),
            scopes=ScopeMap(tenants={"acme": "shop"}),
        )
    )
    assert (head.kind, head.flags, head.at_ms, head.weight) == (
        Kind.REQUEST,
        Flag.DEMAND | Flag.TEXT,
        AT_MS,
        2_500_000,
    )
    assert head.query.hex() == query_sha256("Where is my card?")
    assert head.text == "Where is my card?"
    assert head.names is not None
    assert head.names.__class__("shop", "gpu", "m", "x", "t", "u", "s", "t") == head.names
    assert head.shard == shard_for("shop", head.query, 8) < 8
    assert unpack_chain(head.chain) == (bytes.fromhex(segments[0].hash + segments[1].hash), (1, 2), b"\x01\x01")


def test_both_phases_and_no_other_request_have_one_identity_in_one_shard() -> None:
    started = Head(take(event()))
    finished = Head(take(event(phase="finished", completed_at_ms=AT_MS + 900, event_id="e2")))
    assert (started.identity, started.shard) == (finished.identity, finished.shard)
    assert finished.flags & Flag.FINISHED
    assert finished.at_ms == AT_MS + 900
    others = [event(request_id="r2"), event(attempt=2), event(tenant="other")]
    assert len({started.identity, *(Head(take(each)).identity for each in others)}) == 4


@pytest.mark.parametrize("origin", ["warmup", "probe", "eval", "batch"])
def test_only_users_are_demand(origin: str) -> None:
    assert not Head(take(event(origin=origin))).flags & Flag.DEMAND


@pytest.mark.parametrize("text", ["[REDACTED]", " *** ", "<redacted>", "", None, " \n"])
def test_a_withheld_text_has_the_producers_hash_or_that_of_its_prompt_or_its_own(text: str | None) -> None:
    own = h128("known to the producer")
    assert Head(take(event(query=text, query_sha256=own))).query.hex() == own
    segments = tuple(chain("a", "b"))
    assert Head(take(event(query=text, segments=segments))).query.hex() == segments[-1].hash
    alone = [Head(take(event(query=text, request_id=request))) for request in ("r1", "r2")]
    assert alone[0].query != alone[1].query
    assert not alone[0].flags & (Flag.TEXT | Flag.TEXT_TOO_LONG)
    assert alone[0].text == ""


def test_a_shown_text_decides_over_the_producers_hash() -> None:
    assert Head(take(event(query_sha256="0" * 32))).query.hex() == query_sha256("Where is my card?")


def test_a_long_text_is_counted_but_not_carried() -> None:
    fits, long = Head(take(event(query="ä" * 512))), Head(take(event(query="ä" * 513)))
    assert fits.flags & Flag.TEXT
    assert fits.text == "ä" * 512
    assert long.flags & Flag.TEXT_TOO_LONG
    assert long.text == ""
    assert long.query.hex() == query_sha256("ä" * 513)


def test_composed_and_decomposed_text_are_one_query() -> None:
    assert Head(take(event(query="Caf\u00e9"))).query == Head(take(event(query="Cafe\u0301"))).query


def test_the_session_stands_in_for_the_user_and_is_none_of_them() -> None:
    named, session = Head(take(event(user="x"))), Head(take(event(user=None, session="x")))
    assert 0 not in (named.user, session.user)
    assert named.user != session.user != Head(take(event(user=None, session="x", tenant="other"))).user
    assert Head(take(event(user=None))).user == 0


def test_the_template_is_the_rendering_ones_hash_or_the_managed_prompt() -> None:
    def template(**changes: Any) -> str:
        names = Head(take(event(**changes))).names
        assert names is not None
        return names.template

    assert template() == ""
    assert template(prompt=PromptRef("support", "7")) == "support@7"
    assert template(prompt=PromptRef("support", "7"), render=Render("sha")) == "sha"
    assert template(prompt=PromptRef("n" * 256, "7")) == h128("n" * 256, "7")


def test_a_small_scope_lives_in_one_shard() -> None:
    scopes = ScopeMap(small=frozenset({"default"}))
    assert len({Head(take(event(query=f"q{i}"), scopes=scopes)).shard for i in range(20)}) == 1
    assert len({Head(take(event(query=f"q{i}"))).shard for i in range(20)}) > 5


def test_a_reward_lies_in_the_shard_of_its_query() -> None:
    reward = RewardEvent(
        event_id="w",
        occurred_at_ms=AT_MS,
        tenant="acme",
        query_sha256=query_sha256("Where is my card?"),
        reward=0.25,
        source="click",
        reward_model_version="1",
    )
    head = Head(take(reward))
    assert (head.kind, head.weight, head.shard) == (Kind.REWARD, 250_000, Head(take(event())).shard)


def test_telemetry_goes_to_its_pools_planner_as_it_came() -> None:
    sample = encode(ReplicaSample(replica="r", pool="gpu", incarnation="1", sampled_at_ms=AT_MS, state="ready"))
    for value in (sample, b"\0\0\0\0\7" + sample):
        (control,) = take(value).control
        assert (tag_of(control), key_of(control), body_of(control)) == (Tag.CONTROL, "gpu", sample)


BAD = {
    b"": DeadReason.MALFORMED_JSON,
    b"{": DeadReason.MALFORMED_JSON,
    b"\xff\xfe{}": DeadReason.NOT_UTF8,
    b"null": DeadReason.WRONG_TYPE,
    b"[]": DeadReason.WRONG_TYPE,
    b"[" * 100_000: DeadReason.WRONG_TYPE,
    b'{"x":' + b"[" * 100_000: DeadReason.MALFORMED_JSON,
    b'{"schema":"request_event/99"}': DeadReason.UNKNOWN_SCHEMA,
    b'{"schema":"policy/1"}': DeadReason.UNKNOWN_SCHEMA,
    encode(event())[:-5]: DeadReason.MALFORMED_JSON,
    encode(event()).replace(b'"gpu"', b"7"): DeadReason.WRONG_TYPE,
    encode(event()).replace(b'"pool":"gpu",', b""): DeadReason.MISSING_FIELD,
    encode(event()).replace(str(AT_MS).encode(), b"-1"): DeadReason.OUT_OF_RANGE,
    encode(event()).replace(str(AT_MS).encode(), b"NaN"): DeadReason.MALFORMED_JSON,
    encode(event(query="x" * 100_000)): DeadReason.OUT_OF_RANGE,
    encode(event(segments=tuple(Segment("0" * 32, 1) for _ in range(2_000)))): DeadReason.OUT_OF_RANGE,
    encode(event(segments=(Segment("z" * 32, 1),))): DeadReason.BAD_HASH,
    # It once stopped the job: no check of the event looked at it.
    encode(event(phase="finished", response_sha256="z" * 32)): DeadReason.BAD_HASH,
    b'{"schema":"request_event/1","query":"' + b"x" * 5_000_000 + b'"}': DeadReason.TOO_LARGE,
    encode(event(pool="\U0001f600" * 64)): DeadReason.OUT_OF_RANGE,
}


@pytest.mark.parametrize(("value", "reason"), BAD.items(), ids=[f"{value[:30]!r}" for value in BAD])
def test_a_bad_request_is_a_letter_with_reason_and_a_fact_that_is_counted(value: bytes, reason: DeadReason) -> None:
    got = take(value)
    found = letter(got)
    assert (found.reason, found.source_topic, found.size) == (reason, "llm.requests", len(value))
    assert found.payload is None
    assert Head(got).kind == Kind.DEAD
    assert got.control == ()


def test_a_bad_record_of_another_topic_is_no_request() -> None:
    for value, topic in (
        (b'{"schema": "reward_event/1", "reward": 2}', "llm.rewards"),
        (b'{"schema":"residency/1","pool":', "warmup.residency"),
        (b'{"schema":"replica_sample/3"}', "llm.telemetry"),
    ):
        got = take(value, topic_prefix="test.")
        assert letter(got).source_topic == "test." + topic
        assert got.fact is None


def test_a_prompt_cannot_pass_for_another_topic() -> None:
    value = encode(event(query='"schema":"reward_event/1"')).replace(b'"m"', b"1")
    assert letter(take(value)).source_topic == "llm.requests"


@pytest.mark.parametrize("record_ms", [AT_MS - 30_001, AT_MS + 30_001, -1, -(2**63), 2**62])
def test_a_time_far_from_its_records_is_a_letter_that_names_the_event(record_ms: int) -> None:
    found = letter(take(event(), record_ms))
    assert (found.reason, found.event_id) == (DeadReason.TIME_SKEW, "e1")
    assert take(event(), AT_MS - 30_000).dead is None


def test_unknown_tenants_are_rejected_only_where_the_map_says_so() -> None:
    assert letter(take(event(), scopes=ScopeMap(unknown="reject"))).reason == DeadReason.UNKNOWN_TENANT
    names = Head(take(event(), scopes=ScopeMap(unknown="own"))).names
    assert names is not None
    assert names.scope == "acme"


@pytest.mark.parametrize("tenant", ["shop", "default", "*"])
def test_an_unlisted_tenant_cannot_choose_somebody_elses_scope(tenant: str) -> None:
    scopes = ScopeMap(tenants={"acme": "shop"}, unknown="own")
    found = letter(take(event(tenant=tenant), scopes=scopes))
    assert (found.reason, found.path) == (DeadReason.UNKNOWN_TENANT, "$.tenant")
    assert scopes.scope_of("acme") == "shop"
    assert scopes.scope_of("other") == "other"
    listed = ScopeMap(tenants={"acme": "shop", "shop": "shop"}, unknown="own")
    assert listed.scope_of("shop") == "shop"


def test_an_unlisted_tenant_never_becomes_every_scope() -> None:
    assert ScopeMap().scope_of("*") == "default"


def test_the_payload_is_kept_only_where_it_is_allowed_and_fits() -> None:
    assert letter(take(b"{", keep_payload=True)).payload == b"{"
    huge = letter(take(b"{" * 2_000_000, keep_payload=True))
    assert (huge.payload, huge.size) == (None, 2_000_000)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode), st.integers(-(2**63), 2**63 - 1))
def test_any_bytes_at_any_time_are_one_letter(value: bytes, record_ms: int) -> None:
    got = take(value, record_ms)
    assert letter(got).size == len(value)
    assert got.fact is not None
    assert shard_of(got.fact) < 8


def test_a_chain_survives_packing() -> None:
    assert pack_chain(()) == b""
    assert unpack_chain(b"") == (b"", (), b"")
    roles = ("system", "user", "assistant", "tool", "developer", "block")
    segments = [Segment(h128(role), 1 << 24, role) for role in roles]
    assert unpack_chain(pack_chain(segments))[1:] == ((1 << 24,) * 6, bytes(range(6)))


_SCRIPT = """
import hashlib
from analytics.demand import Demand, DemandConfig
from analytics.ingest import Ingest, IngestConfig
from analytics.policy import PolicyBook
from analytics.stores import MemoryLogStore
from schemas import RequestEvent, Segment, encode
from schemas.canonical import h128
config = DemandConfig(shards=1)
ingest, book = Ingest(IngestConfig(shards=1)), PolicyBook()
demand = Demand(config, 0, MemoryLogStore(config.logs))
digest = hashlib.sha256()
at = 1_700_000_000_000
for number in range(400):
    at += 317
    event = RequestEvent(
        event_id=str(number), request_id=str(number * 7 % 390), phase="started", occurred_at_ms=at, tenant="t",
        user=f"u{number % 23}", pool=f"p{number % 3}", model="m", adapter=f"a{number % 4}", query=f"q{number % 31}",
        segments=tuple(Segment(h128(str(number % 11), str(depth)), depth) for depth in range(3)), sample_weight=0.7,
    )
    fact = ingest.on_record(encode(event), at).fact
    while demand.next_timer_ms is not None and demand.next_timer_ms <= at - 5000:
        for envelope in demand.on_timer(demand.next_timer_ms, book):
            digest.update(envelope)
    for envelope in demand.on_fact(fact, at - 5000, book):
        digest.update(envelope)
print(digest.hexdigest())
"""


def test_the_same_records_give_the_same_bytes_in_every_process() -> None:
    digests = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout)
    assert len(digests) == 1


def test_residency_of_a_lost_prefix_is_control_too() -> None:
    lost = Residency(
        replica="r",
        pool="gpu",
        incarnation="1",
        scope="s",
        target_key="prefix:x",
        resident_tokens=0,
        seq=1,
        observed_at_ms=AT_MS,
        source="events",
    )
    assert take(encode(lost)).control
