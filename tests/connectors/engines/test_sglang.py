"""What the SGLang adapter sends, and which of the two faults a caller sees."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest

from connectors.engines import ChatMessage, Messages, Salt, Text
from connectors.engines.sglang import SglangEngine
from connectors.engines.sglang_answers import ServerInfo
from connectors.engines.sglang_requests import addressed, common_start, continued, events_tell_salts
from connectors.engines.vllm import VllmEngine
from schemas.errors import RefusedCommand, TransientFault

MODELS = {"data": [{"id": "tiny", "owned_by": "sglang", "max_model_len": 100}]}
INFO = {"version": "0.5.23", "page_size": 4, "max_total_num_tokens": 1000, "enable_lora": True}
FOUND = {"text": "", "meta_info": {"prompt_tokens": 3, "cached_tokens": 2}}


class Replica:
    """A server of canned answers that remembers what it was asked."""

    def __init__(self, answers: Mapping[str, httpx.Response | Exception] | None = None, **info: Any) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.answers: dict[str, httpx.Response | Exception] = {
            "/v1/models": httpx.Response(200, json=MODELS),
            "/server_info": httpx.Response(200, json=INFO | info),
            "/generate": httpx.Response(200, json=FOUND),
            **(answers or {}),
        }

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append((request.url.path, json.loads(request.content or b"null")))
        answer = self.answers.get(request.url.path, httpx.Response(404, json={"detail": "Not Found"}))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def bodies(self, path: str) -> list[Any]:
        return [body for asked, body in self.asked if asked == path]


def engine(replica: Callable[[httpx.Request], httpx.Response]) -> SglangEngine:
    return SglangEngine("http://replica", transport=httpx.MockTransport(replica))


async def test_it_is_known_by_two_questions_that_cost_no_token() -> None:
    replica = Replica()
    told = await engine(replica).capabilities()
    assert (told.engine, told.version, told.models) == ("sglang", "0.5.23", ("tiny",))
    assert (told.block_tokens, told.num_blocks, told.max_prompt_tokens) == (4, 250, 99)
    assert (told.runtime_adapters, told.adapter_pins, told.sleep) == (True, True, False)
    assert [path for path, _body in replica.asked] == ["/v1/models", "/server_info"]


async def test_several_data_parallel_ranks_load_no_adapters() -> None:
    told = await engine(Replica(dp_size=2)).capabilities()
    assert (told.runtime_adapters, told.adapter_pins) == (False, False)


async def test_salted_prompts_go_where_a_gateways_go_and_others_to_the_native_route() -> None:
    usage = {"usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}}}
    replica = Replica({"/v1/completions": httpx.Response(200, json=usage)})
    plain = await engine(replica).warm_tokens("tiny", [1, 2, 3], request_id="r")
    salted = await engine(replica).warm_tokens("tiny", [1, 2, 3], salt=Salt("s"), request_id="r")
    assert (plain.cached_tokens, plain.created_tokens) == (2, None)
    assert (salted.cached_tokens, salted.created_tokens) == (1, None)
    (native,), (completion,) = replica.bodies("/generate"), replica.bodies("/v1/completions")
    assert (native["input_ids"], native["sampling_params"]["max_new_tokens"]) == ([1, 2, 3], 1)
    assert "cache_salt" not in native
    assert (completion["prompt"], completion["cache_salt"], completion["max_tokens"]) == ([1, 2, 3], "s", 1)


async def test_no_request_id_begins_with_another() -> None:
    replica = Replica()
    for _ in range(2):
        await engine(replica).warm_tokens("tiny", [1], request_id="warmup-1")
    first, second = (body["rid"] for body in replica.bodies("/generate"))
    assert first != second
    assert first.startswith("warmup-1.")
    assert len(first) == len(second)


@pytest.mark.parametrize(
    ("flags", "urgent", "idle"),
    [
        ({}, None, None),
        ({"enable_priority_scheduling": True}, None, None),
        ({"enable_priority_scheduling": True, "default_priority_value": 5}, 5, -994),
        (
            {
                "enable_priority_scheduling": True,
                "default_priority_value": 5,
                "schedule_low_priority_values_first": True,
            },
            5,
            1004,
        ),
        (
            {
                "enable_priority_scheduling": True,
                "default_priority_value": 5,
                "schedule_low_priority_values_first": True,
                "radix_eviction_policy": "priority",
            },
            None,
            None,
        ),
    ],
)
def test_no_warm_up_overtakes_a_user(flags: dict[str, Any], urgent: int | None, idle: int | None) -> None:
    info = ServerInfo("0.5.23", **flags)
    told = [addressed(info, None, None, "r", priority).get("priority") for priority in (999, 0)]
    assert told == [urgent, idle]


async def test_a_model_that_it_does_not_serve_is_refused_here_since_it_would_take_any_name() -> None:
    with pytest.raises(RefusedCommand, match="does not exist"):
        await engine(Replica()).warm_tokens("other", [1], request_id="r")


async def test_an_adapter_that_is_not_loaded_is_refused_since_it_would_come_back_by_itself() -> None:
    replica = Replica()
    with pytest.raises(RefusedCommand, match="not loaded"):
        await engine(replica).warm_tokens("tiny", [1], adapter="a@1", request_id="r")
    assert replica.bodies("/generate") == []


async def test_an_engine_that_would_lose_the_salt_gets_none() -> None:
    with pytest.raises(RefusedCommand, match="LMCache"):
        await engine(Replica(enable_lmcache=True)).warm_tokens("tiny", [1], salt=Salt("s"), request_id="r")


async def test_an_engine_without_a_prefix_cache_is_not_warmed() -> None:
    with pytest.raises(RefusedCommand, match="keeps no prefixes"):
        await engine(Replica(disable_radix_cache=True)).warm_tokens("tiny", [1], request_id="r")


@pytest.mark.parametrize("fault", [httpx.ReadError("closed half-way"), httpx.RemoteProtocolError("cut off")])
async def test_a_request_without_a_whole_answer_is_transient_and_aborted(fault: Exception) -> None:
    replica = Replica({"/generate": fault})
    given_up = engine(replica)
    with pytest.raises(TransientFault):
        await given_up.warm_tokens("tiny", [1], request_id="r")
    await given_up.close()
    assert replica.bodies("/abort_request") == [{"rid": replica.bodies("/generate")[0]["rid"]}]


async def test_an_engine_that_closes_half_way_is_transient_and_told_to_stop() -> None:
    known = {"/v1/models": MODELS, "/server_info": INFO}
    aborted = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        content = json.dumps(known[path]).encode() if path in known else b'{"meta_info": {"prompt'
        missing = 0 if path in known else 100
        if path == "/abort_request":
            aborted.set()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(content) + missing, content))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        replica = SglangEngine(f"http://127.0.0.1:{port}")
        with pytest.raises(TransientFault):
            await replica.warm_tokens("tiny", [1], request_id="r")
        await asyncio.wait_for(aborted.wait(), 60)
        await replica.close()


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_full_queue_is_transient_and_nothing_is_left_to_abort(status: int) -> None:
    full = {"object": "error", "message": "The request queue is full.", "type": str(status), "code": status}
    replica = Replica({"/generate": httpx.Response(status, json=full)})
    busy = engine(replica)
    with pytest.raises(TransientFault, match="queue is full"):
        await busy.warm_tokens("tiny", [1], request_id="r")
    await busy.close()
    assert replica.bodies("/abort_request") == []


@pytest.mark.parametrize(
    "body", [{"error": {"message": "too long"}}, {"object": "error", "message": "too long", "type": "BadRequest"}]
)
async def test_both_error_shapes_are_read(body: dict[str, Any]) -> None:
    with pytest.raises(RefusedCommand, match="too long"):
        await engine(Replica({"/generate": httpx.Response(400, json=body)})).warm_tokens("tiny", [1], request_id="r")


async def test_validation_errors_quote_the_value_so_they_are_not_passed_on() -> None:
    quoting = {"object": "error", "message": "1 validation error: {'input': 'my-salt'}", "type": "BadRequestError"}
    replica = Replica({"/v1/completions": httpx.Response(400, json=quoting)})
    with pytest.raises(RefusedCommand) as refused:
        await engine(replica).warm_tokens("tiny", [1], salt=Salt("my-salt"), request_id="r")
    assert "my-salt" not in str(refused.value)


@pytest.mark.parametrize("answer", ["<html>", "[]", "{}", '{"meta_info": {"prompt_tokens": -1}}'])
async def test_garbage_is_transient(answer: str) -> None:
    replica = Replica({"/generate": httpx.Response(200, text=answer)})
    with pytest.raises(TransientFault):
        await engine(replica).warm_tokens("tiny", [1], request_id="r")


@pytest.mark.parametrize("garbage", [b"", b"<html>", b"[]", b"{}", b'{"version": 7}', b'{"data": [{}]}', b"\xff"])
async def test_no_answer_makes_a_call_raise_anything_but_our_own(garbage: bytes) -> None:
    replica = engine(lambda _: httpx.Response(200, content=garbage))
    calls = (
        replica.capabilities(),
        replica.tokenize("tiny", Text("a")),
        replica.adapters(),
        replica.load_adapter("a", "p"),
        replica.unload_adapter("a"),
        replica.metrics(),
        replica.warm_tokens("tiny", [1], request_id="r"),
        replica.probe(None, request_id="r"),
        anext(replica.kv_events()),
    )
    answers = await asyncio.gather(*calls, return_exceptions=True)
    faults = [answer for answer in answers if isinstance(answer, BaseException)]
    assert faults
    assert all(isinstance(fault, TransientFault | RefusedCommand) for fault in faults), faults


async def test_a_load_with_a_pin_can_be_pinned_and_another_cannot() -> None:
    replica = Replica({"/load_lora_adapter": httpx.Response(200, json={"success": True})})
    pinning = engine(replica)
    await pinning.load_adapter("a@1", "/a", pinned=True)
    await pinning.pin_adapter("a@1")
    await pinning.load_adapter("b@1", "/b")
    with pytest.raises(RefusedCommand, match="unload it first"):
        await pinning.pin_adapter("b@1")
    assert [body["pinned"] for body in replica.bodies("/load_lora_adapter")] == [True, False]


async def test_a_failed_load_is_refused_in_the_engines_words() -> None:
    failed = httpx.Response(400, json={"success": False, "error_message": "rank 512 is incompatible"})
    with pytest.raises(RefusedCommand, match="rank 512"):
        await engine(Replica({"/load_lora_adapter": failed})).load_adapter("a@1", "/a")


async def test_an_unload_that_did_not_end_is_transient_and_an_unknown_name_a_success() -> None:
    failed = httpx.Response(400, json={"success": False, "error_message": "try again"})
    listed = {"data": [*MODELS["data"], {"id": "a@1", "parent": "tiny", "root": "/a"}]}
    still = Replica({"/unload_lora_adapter": failed, "/v1/models": httpx.Response(200, json=listed)})
    with pytest.raises(TransientFault, match="still listed"):
        await engine(still).unload_adapter("a@1")
    await engine(Replica({"/unload_lora_adapter": failed})).unload_adapter("a@1")


async def test_without_metrics_its_load_is_asked_for() -> None:
    loads = {"loads": [{"num_running_reqs": 2, "num_waiting_reqs": 1, "token_usage": 0.5}, {"num_running_reqs": 1}]}
    told = await engine(Replica({"/v1/loads": httpx.Response(200, json=loads)})).metrics()
    assert (told.running, told.waiting, told.kv_usage, told.block_tokens) == (3, 1, 0.5, 4)


@pytest.mark.parametrize("page", ["sglang:num_running_reqs{ broken\n", "sglang:num_running_reqs +Inf\n"])
async def test_a_page_that_cannot_be_read_is_transient(page: str) -> None:
    with pytest.raises(TransientFault, match="not Prometheus text"):
        await engine(Replica({"/metrics": httpx.Response(200, text=page)})).metrics()


async def test_a_flush_that_is_refused_for_requests_in_flight_is_no_fault() -> None:
    assert await engine(Replica({"/flush_cache": httpx.Response(400, text="busy")})).reset_prefix_cache() is False
    assert await engine(Replica({"/flush_cache": httpx.Response(200, text="ok")})).reset_prefix_cache() is True


async def test_it_is_never_woken() -> None:
    asleep = engine(Replica())
    assert await asleep.is_sleeping() is False
    with pytest.raises(RefusedCommand, match="woken"):
        await asleep.wake()


async def test_each_engine_refuses_the_other_by_name() -> None:
    owned = {kind: {"data": [{"id": "tiny", "owned_by": kind}]} for kind in ("vllm", "sglang")}
    for kind, other in (("vllm", "sglang"), ("sglang", "vllm")):
        replica = Replica({"/v1/models": httpx.Response(200, json=owned[other])})
        transport = httpx.MockTransport(replica)
        mistaken = (VllmEngine if kind == "vllm" else SglangEngine)("http://replica", transport=transport)
        with pytest.raises(RefusedCommand, match=f"answers as {other}, and its settings say {kind}: set kind"):
            await mistaken.capabilities()


async def test_a_page_with_the_other_engines_names_is_refused() -> None:
    page = httpx.Response(200, text="# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs 0\n")
    with pytest.raises(RefusedCommand, match="set kind = 'sglang'"):
        await VllmEngine("http://replica", transport=httpx.MockTransport(lambda _: page)).metrics()


async def test_messages_are_what_every_continuation_begins_with() -> None:
    words = {"system": 1, "user": 2, "assistant": 3, "S": 4, "U": 5}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path != "/v1/tokenize":
            return replica(request)
        said = json.loads(request.content)["messages"]
        ids = [one for message in said for one in (words[message["role"]], words.get(message["content"], 9))]
        return httpx.Response(200, json={"tokens": [*ids, words["assistant"]]})

    replica = Replica()
    system: ChatMessage = {"role": "system", "content": "S"}
    user: ChatMessage = {"role": "user", "content": "U"}
    assert (await engine(answer).tokenize("tiny", Messages([system, user])))[:4] == (1, 4, 2, 5)
    told = await engine(answer).tokenize("tiny", Messages([system]))
    assert told[:2] == (1, 4)


def test_continuations_keep_the_order_of_roles() -> None:
    system: ChatMessage = {"role": "system", "content": "S"}
    user: ChatMessage = {"role": "user", "content": "U"}
    for chat in ([system], [system, user], [system, user, {"role": "assistant", "content": "A"}]):
        for longer in continued(chat):
            assert longer[: len(chat)] == chat
            roles = [message["role"] for message in longer[1:]]
            assert roles == (["user", "assistant"] * len(roles))[: len(roles)]


def test_a_common_start_ends_where_they_part() -> None:
    assert common_start([1, 2, 3], [1, 2, 4]) == (1, 2)
    assert common_start([1, 2], [1, 2, 4]) == (1, 2)
    assert common_start([], [1]) == ()


@pytest.mark.parametrize(
    ("version", "told"),
    [("0.5.22", False), ("0.5.23", True), ("0.6.0.post1", True), ("0.0.0.dev0", False), ("", False)],
)
def test_events_of_old_versions_are_not_followed(version: str, told: bool) -> None:
    assert events_tell_salts(version) is told


@pytest.mark.parametrize(
    ("flags", "followed"),
    [({"enable_lora": False}, True), ({"enable_lora": True}, False), ({"version": "0.5.0"}, False)],
)
async def test_events_are_followed_where_they_tell_apart_what_shares_no_cache(
    flags: dict[str, Any], followed: bool
) -> None:
    events = {"endpoint_host": "*", "endpoint_port_base": 5557, "topic": "kv", "dp_size": 2}
    config = json.dumps({"publisher": "zmq", "replay_endpoint": "tcp://*:6000"})
    info = {"enable_lora": False, "kv_events": events, "kv_events_config": config} | flags
    sources = (await engine(Replica(**info)).capabilities()).event_sources
    told = [(source.rank, source.endpoint, source.replay_endpoint, source.topic) for source in sources]
    assert told == (
        [(rank, f"tcp://replica:{5557 + rank}", f"tcp://replica:{6000 + rank}", "kv") for rank in (0, 1)]
        if followed
        else []
    )
