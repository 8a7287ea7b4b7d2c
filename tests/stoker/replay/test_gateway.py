"""The client against an engine in memory: events, texts, routing, and failures that become events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence

import httpx
import pytest

from analytics.scopes import ScopeMap
from schemas import RequestEvent, StokerError, TransientFault, decode, encode
from schemas.canonical import query_sha256
from stoker.replay.blobs import FreshBlobs
from stoker.replay.events import REDACTED, Marks
from stoker.replay.gateway import Gateway, GatewayConfig, Routing, Salting, Seen
from stoker.replay.turns import Piece, Turn

CHAT = Turn(0, "shop", "ann", "s1", (Piece("system", "be kind"), Piece("user", "hi  there")), "hi  there", 3)
BLOCKS = Turn(0, "shop", "ann", "s1", (Piece("block", "256 257"), Piece("block", "300")), "hi", 3)
REPLICAS = {"r0": "http://r0", "r1": "http://r1"}


class Engine:
    """Answers like vLLM; `fail` replaces the answer to a generation."""

    def __init__(self, fail: Callable[[httpx.Request], httpx.Response] | None = None) -> None:
        self.bodies: list[tuple[str, str, dict[str, object]]] = []
        self._fail = fail

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if request.url.path == "/tokenize":
            return httpx.Response(200, json={"count": 2 + len(body["messages"][0]["content"].split())})
        self.bodies.append((request.url.host, request.url.path, body))
        if self._fail is not None:
            return self._fail(request)
        piece = {"text": " ok"} if "prompt" in body else {"delta": {"content": " ok"}}
        chunks = [
            {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
            {"choices": [piece]},
            {"choices": [{**piece, "finish_reason": "length"}]},
            {
                "choices": [],
                "usage": {
                    "prompt_tokens": 9,
                    "completion_tokens": 3,
                    "prompt_tokens_details": {"cached_tokens": 4},
                },
            },
        ]
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
        return httpx.Response(200, text="".join(lines) + "data: [DONE]\n\n")


class Texts:
    """Remembers what was put."""

    def __init__(self) -> None:
        self.put_: list[tuple[str, str, str]] = []

    def put(self, scope: str, blobs: Mapping[str, bytes], ttl_ms: int) -> None:
        assert ttl_ms == 60_000
        self.put_ += [(scope, name, text.decode()) for name, text in blobs.items()]

    def get(self, scope: str, hashes: Sequence[str]) -> dict[str, bytes]:
        return {name: text.encode() for at, name, text in self.put_ if at == scope and name in hashes}


class Played:
    def __init__(self) -> None:
        self.events: list[RequestEvent] = []
        self.texts = Texts()
        self.seen: list[Seen] = []
        self.gateway: Gateway

    async def run(
        self,
        turns: list[Turn],
        engine: Engine,
        routing: Routing = "session",
        publish: Callable[[RequestEvent], None] | None = None,
        salts: Mapping[str, Salting] | None = None,
        concurrency: int = 8,
    ) -> Played:
        marks = Marks("gpu", "tiny", b"key")
        config = GatewayConfig("run", marks, routing, concurrency, salts=salts or {})
        async with httpx.AsyncClient(transport=httpx.MockTransport(engine)) as client:
            self.gateway = Gateway(
                config,
                REPLICAS,
                publish or self.events.append,
                FreshBlobs(self.texts, 60_000),
                ScopeMap(unknown="own"),
                client,
            )
            await self.gateway.play(turns, self.seen.append)
        return self


async def test_a_request_gives_two_valid_events_with_what_was_measured() -> None:
    played = await Played().run([CHAT], Engine())
    start, end = (decode(encode(event), RequestEvent) for event in played.events)
    assert (start.phase, end.phase) == ("started", "finished")
    assert start.request_id == end.request_id
    assert start.event_id != end.event_id
    assert start.query_sha256 == query_sha256("hi there")
    assert [(segment.role, segment.tokens) for segment in start.segments] == [("system", 4), ("user", 4)]
    assert start.user not in (None, "ann")
    assert end.completed_at_ms is not None
    assert end.completed_at_ms >= start.occurred_at_ms
    assert end.cache is not None
    assert (end.cache.kv_cached_tokens, end.input_tokens, end.output_tokens) == (4, 9, 3)
    assert (end.status, end.finish_reason, end.error_type) == (200, "length", None)
    assert end.ttft_ms is not None
    assert end.latency_ms is not None
    assert end.ttft_ms <= end.latency_ms


async def test_texts_lie_in_the_tenants_scope_before_the_event_names_them() -> None:
    played = Played()
    known_at_publish: list[set[str]] = []

    def publish(event: RequestEvent) -> None:
        known_at_publish.append({name for _scope, name, _text in played.texts.put_})
        played.events.append(event)

    await played.run([CHAT], Engine(), publish=publish)
    assert known_at_publish[0] == {segment.hash for segment in played.events[0].segments}
    assert [(scope, text) for scope, _name, text in played.texts.put_] == [("shop", "be kind"), ("shop", "hi  there")]


async def test_a_tenant_that_withholds_texts_leaves_none_behind() -> None:
    turn = Turn(0, "clinic", "bob", "s2", CHAT.pieces, CHAT.query, 3, withheld=True)
    played = await Played().run([turn], Engine())
    assert played.texts.put_ == []
    assert all(event.query == REDACTED for event in played.events)
    assert played.events[0].query_sha256 == query_sha256(CHAT.query)
    assert b"hi" not in encode(played.events[1]).split(b'"query":')[1].split(b",")[0]


async def test_token_blocks_go_as_ids_and_messages_as_chat() -> None:
    engine = Engine()
    await Played().run([BLOCKS, CHAT], engine)
    paths = {path: body for _host, path, body in engine.bodies}
    assert paths["/v1/completions"]["prompt"] == [256, 257, 300]
    assert paths["/v1/chat/completions"]["messages"] == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "hi  there"},
    ]


async def test_a_salt_reaches_the_engine_and_only_its_name_the_events() -> None:
    engine = Engine()
    played = await Played().run([CHAT], engine, salts={"shop": Salting("salt-1", "very secret")})
    assert engine.bodies[0][2]["cache_salt"] == "very secret"
    assert played.events[0].render is not None
    assert played.events[0].render.salt_ref == "salt-1"
    assert b"very secret" not in encode(played.events[0]) + repr(played.gateway._config).encode()


async def test_a_session_stays_on_a_replica_and_round_robin_takes_turns() -> None:
    turns = [Turn(0, "shop", "ann", f"s{k % 3}", CHAT.pieces, "q", 1) for k in range(12)]
    by_session: dict[str | None, set[str | None]] = {}
    for event in (await Played().run(turns, Engine())).events:
        by_session.setdefault(event.session, set()).add(event.replica)
    assert all(len(replicas) == 1 for replicas in by_session.values())
    dealt = (await Played().run(turns, Engine(), routing="round_robin")).events
    assert sum(event.replica == "r0" for event in dealt) == len(dealt) / 2


@pytest.mark.parametrize(
    ("status", "error", "fail"),
    [
        (503, "http_503", lambda _request: httpx.Response(503, json={"error": {"message": "full"}})),
        (502, "broken_stream", lambda _request: httpx.Response(200, text='data: {"choices": []}\n\n')),
        (502, "unreadable_stream", lambda _request: httpx.Response(200, text="data: {\n\n")),
        (502, "engine_error", lambda _request: httpx.Response(200, text='data: {"error": {"code": 500}}\n\n')),
    ],
)
async def test_an_engines_failure_is_an_event(
    status: int, error: str, fail: Callable[[httpx.Request], httpx.Response]
) -> None:
    played = await Played().run([CHAT], Engine(fail))
    end = played.events[1]
    assert (end.status, end.error_type, end.finish_reason) == (status, error, "error")
    assert played.gateway.failed == 1
    assert played.gateway.errors == {error: 1}


@pytest.mark.parametrize(("fault", "status"), [(httpx.ConnectError("no"), 502), (httpx.ReadTimeout("slow"), 504)])
async def test_no_answer_is_an_event_too(fault: Exception, status: int) -> None:
    def fail(_request: httpx.Request) -> httpx.Response:
        raise fault

    played = await Played().run([CHAT], Engine(fail))
    assert played.events[1].status == status


async def test_concurrency_is_bounded_and_the_delay_told() -> None:
    running = most = 0

    class Slow(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            nonlocal running, most
            if request.url.path == "/tokenize":
                return Engine()(request)
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.02)
            running -= 1
            return httpx.Response(503)

    gateway = Gateway(
        GatewayConfig("run", Marks("gpu", "tiny", b"key"), concurrency=2),
        REPLICAS,
        lambda _event: None,
        None,
        ScopeMap(),
        httpx.AsyncClient(transport=Slow()),
    )
    await gateway.play([CHAT] * 10)
    assert (most, gateway.requests) == (2, 10)
    assert gateway.behind_ms > 50


async def test_a_broker_that_refuses_stops_the_play_with_its_own_error() -> None:
    def publish(_event: RequestEvent) -> None:
        raise TransientFault("Kafka is gone")

    with pytest.raises(StokerError, match="Kafka is gone"):
        await Played().run([CHAT], Engine(), publish=publish)


async def test_a_fresh_text_is_not_written_again_until_half_its_life() -> None:
    now = 0.0
    texts = Texts()
    blobs = FreshBlobs(texts, 60_000, clock_ms=lambda: now)
    await blobs.put("a", {"h": "text"})
    await blobs.put("a", {"h": "text"})
    await blobs.put("b", {"h": "text"})
    assert len(texts.put_) == 2
    now = 31_000.0
    await blobs.put("a", {"h": "text"})
    assert len(texts.put_) == 3
