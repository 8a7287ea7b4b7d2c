"""What the TensorRT-LLM adapter sends, and which of the two faults a caller sees."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any
from zlib import crc32

import httpx
import pytest

from connectors.engines import ChatMessage, Messages, Salt, Text
from connectors.engines.tensorrt import TensorrtEngine
from connectors.engines.tensorrt_answers import Iteration, KvCacheStats
from connectors.engines.tensorrt_metrics import from_iteration, parse_metrics
from connectors.engines.tensorrt_requests import KnownAdapters, adapter_id, addressed
from connectors.engines.vllm import VllmEngine
from schemas.errors import RefusedCommand, TransientFault

MODELS = {"data": [{"id": "tiny", "owned_by": "tensorrt_llm"}]}
TAKES = ["model", "max_tokens", "temperature", "lora_request"]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SYSTEM: list[ChatMessage] = [{"role": "system", "content": "Be short."}]


def usage(cached: int | None) -> httpx.Response:
    details = None if cached is None else {"cached_tokens": cached}
    told = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": details}
    return httpx.Response(200, json={"choices": [], "usage": told})


class Replica:
    """A server with a memory of prompts."""

    def __init__(
        self,
        heeds: bool = True,
        answers: Mapping[str, httpx.Response | Exception] | None = None,
        takes: tuple[str, ...] = (),
        tells: bool = True,
        reuses: bool = True,
    ) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.heeds, self.tells, self.reuses = heeds, tells, reuses
        self.seen: set[str] = set()
        fields = {"properties": {name: {} for name in (*TAKES, *takes)}}
        schemas = {"CompletionRequest": fields, "ChatCompletionRequest": fields}
        self.answers: dict[str, httpx.Response | Exception] = {
            "/v1/models": httpx.Response(200, json=MODELS),
            "/version": httpx.Response(200, json={"version": "1.4.0"}),
            "/server_info": httpx.Response(200, json={"disaggregated_params": None, "tokens_per_block": 4}),
            "/openapi.json": httpx.Response(200, json={"components": {"schemas": schemas}}),
            "/health": httpx.Response(200),
            "/metrics": httpx.Response(200, json=[]),
            **(answers or {}),
        }

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path, body = request.url.path, json.loads(request.content or b"null")
        self.asked.append((path, body))
        answer = self.answers.get(path)
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return answer
        return self.answered(body) if path in (CHAT, COMPLETIONS) else httpx.Response(404, json={"detail": "Not Found"})

    def answered(self, body: Mapping[str, Any]) -> httpx.Response:
        key = json.dumps([body.get("prompt"), body.get("lora_request") if self.heeds else None])
        found = 8 if self.reuses and key in self.seen else 0
        self.seen.add(key)
        return usage(found if self.tells else None)

    def bodies(self, path: str) -> list[Any]:
        return [body for asked, body in self.asked if asked == path]


def engine(replica: Callable[[httpx.Request], httpx.Response]) -> TensorrtEngine:
    return TensorrtEngine("http://replica", transport=httpx.MockTransport(replica))


async def test_it_is_known_by_one_token() -> None:
    replica = Replica()
    told = await engine(replica).capabilities()
    assert (told.engine, told.version, told.models) == ("tensorrt_llm", "1.4.0", ("tiny",))
    assert (told.block_tokens, told.num_blocks, told.max_prompt_tokens) == (4, None, None)
    assert (told.runtime_adapters, told.adapter_pins, told.sleep, told.usage_details) == (True, False, False, True)
    assert told.event_sources == ()
    (hello,) = replica.bodies(COMPLETIONS)
    assert (hello["prompt"], hello["max_tokens"]) == ("Hello", 1)


async def test_a_block_that_only_metrics_tell_is_known_from_then_on() -> None:
    page = httpx.Response(404, json={"detail": "Not Found"})
    port = engine(replica := Replica(answers={"/server_info": page}))
    assert (await port.capabilities()).block_tokens is None
    stats = [{"numActiveRequests": 1, "kvCacheStats": {"tokensPerBlock": 32, "maxNumBlocks": 10}}]
    replica.answers["/metrics"] = httpx.Response(200, json=stats)
    await port.metrics()
    replica.answers["/metrics"] = httpx.Response(200, json=[])
    assert (await port.metrics()).blocks_total == 10
    assert (await port.capabilities()).block_tokens == 32
    assert len(replica.bodies(COMPLETIONS)) == 1


async def test_prompts_without_a_salt_go_as_they_are_and_carry_no_unknown_field() -> None:
    replica = Replica()
    port = engine(replica)
    await port.warm_tokens("tiny", [1, 2, 3], request_id="r", priority=999)
    await port.warm_messages("tiny", SYSTEM, request_id="r", priority=999)
    assert replica.bodies(COMPLETIONS)[-1] == {"model": "tiny", "prompt": [1, 2, 3], "max_tokens": 1, "temperature": 0}
    (chat,) = replica.bodies(CHAT)
    assert chat.pop("add_generation_prompt") is False
    assert chat == {"model": "tiny", "messages": SYSTEM, "max_tokens": 1, "temperature": 0}


async def test_no_warm_up_comes_before_a_user_where_there_are_priorities() -> None:
    replica = Replica(takes=("priority",))
    port = engine(replica)
    for priority in (0, 999, None):
        await port.warm_tokens("tiny", [1], request_id="r", priority=priority)
    assert [body.get("priority") for body in replica.bodies(COMPLETIONS)[1:]] == [0.0, 0.5, None]


async def test_a_release_that_does_not_describe_itself_gets_no_priority() -> None:
    for answer in (httpx.Response(404, json={"detail": "Not Found"}), httpx.Response(500)):
        replica = Replica(answers={"/openapi.json": answer})
        await engine(replica).warm_tokens("tiny", [1], request_id="r", priority=5)
        assert "priority" not in replica.bodies(COMPLETIONS)[-1]
    with pytest.raises(TransientFault):
        await engine(Replica(answers={"/openapi.json": httpx.Response(503)})).capabilities()


async def test_salted_ids_go_by_the_chat_route() -> None:
    replica = Replica()
    await engine(replica).warm_tokens("tiny", [1, 2, 3], salt=Salt("s"), request_id="r")
    (chat,) = replica.bodies(CHAT)
    assert (chat["messages"], chat["prompt_token_ids"], chat["cache_salt"]) == ([], [1, 2, 3], "s")


async def test_where_nothing_is_found_again_nothing_is_concluded() -> None:
    with pytest.raises(TransientFault, match="did not find"):
        await engine(Replica(reuses=False)).load_adapter("german@1", "/a")
    with pytest.raises(RefusedCommand, match="does not tell"):
        await engine(Replica(tells=False)).load_adapter("german@1", "/a")


async def test_a_salted_text_is_asked_for_its_ids_first() -> None:
    tokenized = httpx.Response(200, json={"count": 2, "tokens": [7, 8]})
    replica = Replica(answers={"/_internal/tokenize": tokenized})
    await engine(replica).warm_tokens("tiny", "two words", salt=Salt("s"), request_id="r")
    assert replica.bodies(CHAT)[-1]["prompt_token_ids"] == [7, 8]
    with pytest.raises(RefusedCommand, match="does not exist"):
        await engine(Replica()).warm_tokens("tiny", "two words", salt=Salt("s"), request_id="r")


async def test_an_adapter_comes_with_each_request_under_a_number_that_follows_from_its_name() -> None:
    replica = Replica()
    port = engine(replica)
    with pytest.raises(RefusedCommand, match="not loaded"):
        await port.warm_tokens("tiny", [1], adapter="german@1", request_id="r")
    await port.load_adapter("german@1", "/adapters/german")
    wanted = {"lora_name": "german@1", "lora_int_id": crc32(b"german@1") & 0x7FFFFFFF, "lora_path": "/adapters/german"}
    before = len(replica.asked)
    await port.warm_tokens("tiny", [1], adapter="german@1", request_id="r")
    await port.warm_messages("tiny", SYSTEM, adapter="german@1", request_id="r")
    await port.generate("tiny", SYSTEM, adapter="german@1", max_tokens=3, request_id="r")
    await port.probe("german@1", request_id="r")
    assert [body["lora_request"] for _path, body in replica.asked[before:]] == [wanted] * 4
    assert [(each.name, each.path, each.parent) for each in await port.adapters()] == [
        ("german@1", "/adapters/german", "tiny")
    ]
    await port.load_adapter("german@1", "/adapters/german")
    assert len(replica.asked) == before + 4


async def test_an_engine_without_lora_loads_nothing_though_it_answers() -> None:
    port = engine(Replica(heeds=False))
    with pytest.raises(RefusedCommand, match="runs without LoRA"):
        await port.load_adapter("german@1", "/adapters/german")
    assert await port.adapters() == ()


async def test_only_the_first_adapter_is_tried_against_the_base_model() -> None:
    port = engine(replica := Replica())
    await port.capabilities()
    before = len(replica.bodies(COMPLETIONS))
    await port.load_adapter("german@1", "/a")
    await port.load_adapter("french@1", "/b")
    names = [body.get("lora_request", {}).get("lora_name") for body in replica.bodies(COMPLETIONS)[before:]]
    assert names == [None, "german@1", None, "german@1", "french@1"]


async def test_other_weights_under_a_number_are_refused_as_long_as_the_engine_may_have_the_first() -> None:
    port = engine(replica := Replica())
    await port.load_adapter("german@1", "/a")
    await port.unload_adapter("german@1")
    with pytest.raises(RefusedCommand, match="another path"):
        await port.load_adapter("german@1", "/b")
    replica.answers[COMPLETIONS] = httpx.ConnectError("refused")
    with pytest.raises(TransientFault):
        await port.warm_tokens("tiny", [1], request_id="r")
    del replica.answers[COMPLETIONS]
    await port.load_adapter("german@1", "/b")


def test_two_names_with_one_number_are_told_apart() -> None:
    one, other = "plumless", "buckeroo"
    assert adapter_id(one) == adapter_id(other)
    known = KnownAdapters("http://replica")
    known.claim(one, "/a")
    with pytest.raises(RefusedCommand, match="plumless"):
        known.claim(other, "/a")
    known.refused(one)
    known.claim(other, "/a")


async def test_a_load_that_is_refused_leaves_its_number_free() -> None:
    flat = {"object": "error", "message": "Failed to load LoRA adapter: no", "type": "BadRequestError", "code": 400}
    port = engine(replica := Replica())
    await port.capabilities()
    replica.answers[COMPLETIONS] = httpx.Response(400, json=flat)
    with pytest.raises(RefusedCommand, match=r"adapter german@1.*Failed to load") as refused:
        await port.load_adapter("german@1", "/nowhere")
    assert refused.value.reason == "engine_refused"
    del replica.answers[COMPLETIONS]
    await port.load_adapter("german@1", "/a")


async def test_a_first_load_with_its_trial_keeps_to_one_deadline() -> None:
    replica = Replica()

    async def slow(request: httpx.Request) -> httpx.Response:
        if request.url.path == COMPLETIONS and b"Hello" not in request.content:
            await asyncio.sleep(0.15)
        return replica(request)

    port = TensorrtEngine("http://replica", transport=httpx.MockTransport(slow))
    await port.capabilities()
    begun = asyncio.get_running_loop().time()
    with pytest.raises(TransientFault, match=r"within 0\.2 s"):
        await port.load_adapter("german@1", "/a", timeout_s=0.2)
    assert asyncio.get_running_loop().time() - begun >= 0.2
    assert await port.adapters() == ()
    await port.load_adapter("german@1", "/a", timeout_s=60)


async def test_a_malformed_body_is_refused_without_its_words() -> None:
    told = {"error": "[{'type': 'extra_forbidden', 'input': 'salt-of-a-tenant'}]"}
    port = engine(Replica(answers={CHAT: httpx.Response(400, json=told)}))
    with pytest.raises(RefusedCommand) as refused:
        await port.warm_messages("tiny", SYSTEM, request_id="r")
    assert "salt-of-a-tenant" not in str(refused.value)


async def test_an_answer_of_a_dying_engine_is_transient() -> None:
    """Its handler ends with nothing when the executor behind it has failed: 200 and `null`."""
    port = engine(Replica(answers={CHAT: httpx.Response(200, json=None)}))
    with pytest.raises(TransientFault):
        await port.warm_messages("tiny", SYSTEM, request_id="r")


async def test_a_page_that_outlives_its_engine_is_no_sign_of_life() -> None:
    dead = httpx.Response(503, text="LLM is unavailable.")
    port = engine(Replica(answers={"/health": dead, "/prometheus/metrics": httpx.Response(200, text="")}))
    with pytest.raises(TransientFault, match="/health"):
        await port.metrics()


async def test_what_it_cannot_do_is_refused() -> None:
    port = engine(Replica())
    for call in (
        port.wake(),
        port.reset_prefix_cache(),
        port.pin_adapter("a"),
        port.tokenize("tiny", Messages(SYSTEM)),
        port.tokenize("tiny", Text("words")),
        port.warm_tokens("other", [1], request_id="r"),
        port.warm_tokens("tiny", [], request_id="r"),
        port.warm_tokens("tiny", [1], salt=Salt(""), request_id="r"),
    ):
        with pytest.raises(RefusedCommand):
            await call
    assert await port.is_sleeping() is False
    assert [event async for event in port.kv_events()] == []


async def test_another_engine_is_recognised_from_either_side() -> None:
    with pytest.raises(RefusedCommand, match="answers as tensorrt_llm"):
        await VllmEngine("http://replica", transport=httpx.MockTransport(Replica())).metrics()
    other = {"data": [{"id": "tiny", "owned_by": "vllm"}]}
    page = httpx.Response(200, text="vllm:num_requests_running 0\n")
    port = engine(Replica(answers={"/v1/models": httpx.Response(200, json=other), "/metrics": page}))
    for call in (port.capabilities(), port.metrics()):
        with pytest.raises(RefusedCommand, match="kind = 'vllm'"):
            await call


def test_gauges_are_the_greatest_counters_the_sum_of_processes() -> None:
    page = """
trtllm_num_requests_running{pid="1"} 3.0
trtllm_num_requests_running{pid="2"} 1.0
trtllm_num_requests_waiting{pid="1"} 2.0
trtllm_kv_cache_utilization{pid="1"} 0.25
trtllm_kv_cache_max_blocks{pid="1"} 40.0
trtllm_kv_cache_tokens_per_block{pid="1"} 32.0
trtllm_prompt_tokens_total 1000.0
trtllm_prompt_cached_tokens_total 300.0
trtllm_prompt_cached_tokens_per_request_sum 300.0
trtllm_time_to_first_token_seconds_bucket{le="0.1"} 2.0
trtllm_time_to_first_token_seconds_bucket{le="+Inf"} 4.0
trtllm_time_to_first_token_seconds_sum 1.5
"""
    told = parse_metrics(page, 16)
    assert (told.running, told.waiting, told.kv_usage) == (3, 2, 0.25)
    assert (told.blocks_total, told.block_tokens, told.sleeping) == (40, 32, None)
    assert (told.prefix_query_tokens, told.prefix_hit_tokens, told.prompt_tokens) == (1000, 300, 1000)
    assert (told.ttft_s.count, told.ttft_s.total) == (4, 1.5)


def test_blocks_stand_for_tokens_where_those_are_not_counted() -> None:
    page = "trtllm_kv_cache_reused_blocks_total 3.0\ntrtllm_kv_cache_missed_blocks_total 5.0\n"
    told = parse_metrics(page, 16)
    assert (told.prefix_query_tokens, told.prefix_hit_tokens, told.prompt_tokens) == (128, 48, 0)
    assert (told.block_tokens, told.blocks_total) == (16, None)


def test_an_idle_engine_keeps_its_counters_and_runs_nothing() -> None:
    last = Iteration(3, 2, KvCacheStats(10, 4, 8, reused_blocks=5, missed_blocks=15))
    busy, idle = from_iteration(last, False, None), from_iteration(last, True, None)
    assert (busy.running, busy.waiting, busy.kv_usage) == (3, 2, 0.4)
    assert (idle.running, idle.waiting, idle.kv_usage) == (0, 0, 0.0)
    assert busy.prefix_query_tokens == idle.prefix_query_tokens == 160
    assert busy.prefix_hit_tokens == idle.prefix_hit_tokens == 40
    assert from_iteration(None, True, 16).blocks_total is None


def test_a_request_names_only_what_it_has() -> None:
    assert addressed("tiny", None) == {"model": "tiny", "max_tokens": 1, "temperature": 0}
    whole = addressed("tiny", {"lora_name": "a"}, Salt("s"), 500, 7)
    assert (whole["lora_request"], whole["cache_salt"], whole["max_tokens"]) == ({"lora_name": "a"}, "s", 7)
    assert whole["priority"] == pytest.approx(0.25, abs=0.001)
