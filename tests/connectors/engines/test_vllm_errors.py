"""Which of the two faults a caller of the vLLM adapter sees, and what the message may say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest

from connectors.engines import Salt, Text
from connectors.engines.vllm import VllmEngine, mixes_adapters_up
from connectors.engines.vllm_metrics import parse_metrics
from schemas.errors import RefusedCommand, TransientFault


def engine(answer: Callable[[httpx.Request], httpx.Response]) -> VllmEngine:
    return VllmEngine("http://replica", transport=httpx.MockTransport(answer))


def error(status: int, kind: str, message: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"message": message, "type": kind, "param": "x", "code": status}})


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_these_may_pass_later(status: int) -> None:
    with pytest.raises(TransientFault, match=str(status)):
        await engine(lambda _: error(status, "Any", "busy")).warm_tokens("tiny", [1], request_id="r")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_these_never_pass(status: int) -> None:
    with pytest.raises(RefusedCommand, match=str(status)):
        await engine(lambda _: error(status, "Any", "no")).warm_tokens("tiny", [1], request_id="r")


async def test_a_gateways_answer_without_a_body_is_mapped_by_status() -> None:
    with pytest.raises(TransientFault, match="Bad Gateway"):
        await engine(lambda _: httpx.Response(502, text="<html>")).warm_tokens("tiny", [1], request_id="r")


@pytest.mark.parametrize("body", ["<html>", "[]"])
async def test_an_answer_of_another_shape_is_transient(body: str) -> None:
    with pytest.raises(TransientFault):
        await engine(lambda _: httpx.Response(200, text=body)).warm_tokens("tiny", [1], request_id="r")


async def test_a_refused_connection_is_transient() -> None:
    replica = VllmEngine("http://127.0.0.1:9")
    with pytest.raises(TransientFault):
        await replica.metrics()
    await replica.close()


async def test_validation_errors_quote_the_value_so_they_are_not_passed_on() -> None:
    quoting = error(400, "Bad Request", "1 validation error: {'input': 'my-secret-salt'}")
    with pytest.raises(RefusedCommand) as refused:
        await engine(lambda _: quoting).warm_tokens("tiny", [1], salt=Salt("my-secret-salt"), request_id="r")
    assert "secret" not in str(refused.value)


async def test_a_failed_load_is_refused_although_it_is_a_500() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"object": "list", "data": []})
        return error(500, "InternalServerError", "LoRA rank 64 is greater than max_lora_rank 16.")

    with pytest.raises(RefusedCommand, match="rank 64"):
        await engine(answer).load_adapter("big", "/adapters/big")


async def test_higher_priority_becomes_a_lower_number() -> None:
    sent: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.content)
        return httpx.Response(200, json={"usage": {"prompt_tokens": 1}})

    replica = engine(answer)
    for priority in (999, 0):
        await replica.warm_tokens("tiny", [1], request_id="r", priority=priority)
    assert b'"priority":0' in sent[0]
    assert b'"priority":999' in sent[1]


def test_a_page_of_several_engines_is_summed() -> None:
    page = "\n".join(
        f'vllm:{name}{{engine="{engine}"}} {value}'
        for engine in (0, 1)
        for name, value in (("num_requests_running", 2.0), ("kv_cache_usage_perc", 0.25 * (engine + 1)))
    )
    told = parse_metrics(page + "\n")
    assert (told.running, told.kv_usage, told.blocks_total, told.sleeping) == (4, 0.5, None, None)


@pytest.mark.parametrize(
    "body",
    [
        {"tokens": "abc"},
        {"tokens": [1, 2**32]},
        {"tokens": [-1]},
        {"data": [{}]},
        {"usage": {"prompt_tokens": "many"}},
        {"is_sleeping": 7},
        {},
    ],
)
async def test_no_answer_makes_a_call_raise_anything_but_our_own(body: dict[str, object]) -> None:
    replica = engine(lambda _: httpx.Response(200, json=body))
    calls = (
        replica.capabilities(),
        replica.tokenize("tiny", Text("a")),
        replica.adapters(),
        replica.load_adapter("a", "p"),
        replica.is_sleeping(),
        replica.reset_prefix_cache(),
        replica.warm_tokens("tiny", [1], request_id="r"),
        anext(replica.kv_events()),
    )
    answers = await asyncio.gather(*calls, return_exceptions=True)
    faults = [answer for answer in answers if isinstance(answer, BaseException)]
    assert faults
    assert all(isinstance(fault, TransientFault | RefusedCommand) for fault in faults), faults


async def test_counts_that_are_no_numbers_are_transient() -> None:
    page = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running +Inf\n"
    with pytest.raises(TransientFault):
        await engine(lambda _: httpx.Response(200, text=page)).metrics()


@pytest.mark.parametrize(
    ("version", "unsafe"),
    [
        ("0.22.0", False),
        ("0.22.1", True),
        ("0.24.0+cpu", True),
        ("0.31.2.dev3", True),
        ("0.32.0", False),
        ("1.0.0", False),
        ("dev", False),
    ],
)
def test_versions_that_mix_adapters_up_are_known(version: str, unsafe: bool) -> None:
    assert mixes_adapters_up(version) is unsafe


async def test_a_load_that_ended_after_its_caller_gave_up_counts() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if request.url.path == "/v1/load_lora_adapter":
            return error(400, "InvalidUserInput", "has already been loaded")
        loaded = [{"id": "a@1", "parent": "tiny", "root": "/a"}] if len(asked) > 1 else []
        return httpx.Response(200, json={"data": [{"id": "tiny"}, *loaded]})

    await engine(answer).load_adapter("a@1", "/a")
    assert asked == ["/v1/models", "/v1/load_lora_adapter", "/v1/models"]


async def test_a_missing_adapter_is_told_from_a_route_that_is_switched_off() -> None:
    def answer(request: httpx.Request, missing: httpx.Response) -> httpx.Response:
        return missing if request.method == "POST" else httpx.Response(200, json={"data": [{"id": "tiny"}]})

    missing = error(404, "NotFoundError", "No adapter found for /x")
    with pytest.raises(RefusedCommand, match="No adapter found") as refused:
        await engine(lambda request: answer(request, missing)).load_adapter("a@1", "/x")
    assert refused.value.reason == "adapter_missing"
    switched_off = httpx.Response(404, json={"detail": "Not Found"})
    with pytest.raises(RefusedCommand, match="switched this route off") as refused:
        await engine(lambda request: answer(request, switched_off)).load_adapter("a@1", "/x")
    assert refused.value.reason == "engine_refused"


async def test_an_engine_that_cannot_be_woken_by_a_call_says_so() -> None:
    switched_off = httpx.Response(404, json={"detail": "Not Found"})
    with pytest.raises(RefusedCommand, match="switched this route off"):
        await engine(lambda _: switched_off).wake()
    with pytest.raises(RefusedCommand, match="pin"):
        await engine(lambda _: switched_off).pin_adapter("a@1")


async def test_what_an_engine_can_do_is_asked_again_after_it_was_gone() -> None:
    state = {"version": "0.32.0", "up": True}

    def answer(request: httpx.Request) -> httpx.Response:
        if not state["up"]:
            raise httpx.ConnectError("refused", request=request)
        if request.url.path == "/metrics":
            return httpx.Response(200, text="")
        if request.url.path == "/kv_event_sources":
            return httpx.Response(200, json={})
        told = {"version": state["version"], "data": [{"id": "tiny"}], "is_sleeping": False}
        return httpx.Response(200, json=told)

    replica = engine(answer)
    assert (await replica.capabilities()).version == "0.32.0"
    state["version"] = "0.33.0"
    assert (await replica.capabilities()).version == "0.32.0"
    state["up"] = False
    with pytest.raises(TransientFault):
        await replica.metrics()
    state["up"] = True
    assert (await replica.capabilities()).version == "0.33.0"
