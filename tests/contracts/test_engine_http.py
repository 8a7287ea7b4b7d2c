"""HTTP-level contract: the simulator, and with STOKER_VLLM_URL a real vLLM, say what was recorded from vLLM 0.32.0."""

from __future__ import annotations

import asyncio
import json
import os
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from connectors.engines.events import BlocksCleared, BlocksRemoved, BlocksStored
from connectors.engines.kv_events import decode_batch
from connectors.engines.vllm_metrics import parse_metrics
from stoker.simulator import events as simulated
from stoker.simulator.process import RunningSimulator, simulator

RECORDED = Path(__file__).parent / "recorded"
URL = os.environ.get("STOKER_VLLM_URL")
MESSAGES = [{"role": "system", "content": "You help with cards. " * 8}, {"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def small_simulator() -> Iterator[RunningSimulator]:
    flags = ("--block-tokens", "32", "--max-model-len", "1024", "--decode-ms-per-token", "2")
    with simulator(*flags) as running:
        yield running


@pytest_asyncio.fixture(params=["simulator", *(["vllm"] if URL else [])])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[httpx.AsyncClient]:
    if request.param == "simulator":
        url: str = request.getfixturevalue("small_simulator").url
    else:
        assert URL is not None
        url = URL
    async with httpx.AsyncClient(base_url=url, timeout=120) as opened:
        yield opened


async def model_of(client: httpx.AsyncClient) -> str:
    return str((await client.get("/v1/models")).json()["data"][0]["id"])


def shape(value: Any) -> Any:
    """Keys and nesting of a body, without its values; absent and null are different."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return None if value is None else type(value).__name__


def chunks(text: str) -> list[Any]:
    """Decoded `data:` lines of a stream; the last must be [DONE]."""
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def recorded_json(name: str) -> Any:
    return json.loads((RECORDED / name).read_text())


async def test_a_completion_has_the_recorded_shape(client: httpx.AsyncClient) -> None:
    body = {"model": await model_of(client), "temperature": 0, "ignore_eos": True, "max_tokens": 4}
    answer = await client.post("/v1/completions", json={**body, "prompt": list(range(300, 400))})
    assert shape(answer.json()) == shape(recorded_json("completion.json"))


async def test_a_chat_completion_has_the_recorded_shape(client: httpx.AsyncClient) -> None:
    body = {"model": await model_of(client), "temperature": 0, "ignore_eos": True, "max_tokens": 4}
    answer = await client.post("/v1/chat/completions", json={**body, "messages": MESSAGES})
    assert shape(answer.json()) == shape(recorded_json("chat.json"))


@pytest.mark.parametrize(
    ("path", "prompt", "name"),
    [
        ("/v1/completions", {"prompt": list(range(300, 400))}, "completion-stream.txt"),
        ("/v1/chat/completions", {"messages": MESSAGES}, "chat-stream.txt"),
    ],
)
async def test_a_stream_has_the_recorded_chunks(
    client: httpx.AsyncClient, path: str, prompt: dict[str, Any], name: str
) -> None:
    body = {"model": await model_of(client), "temperature": 0, "ignore_eos": True, "max_tokens": 4, **prompt}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    answer = await client.post(path, json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    seen, recorded = chunks(answer.text), chunks((RECORDED / name).read_text())
    if len(seen) == len(recorded):  # a busy vLLM puts several tokens into one chunk
        assert shape(seen[0]) == shape(recorded[0])
    assert shape(seen[-2]) == shape(recorded[-2])
    assert shape(seen[-1]) == shape(recorded[-1])
    assert 2 <= len(seen) <= len(recorded)


@pytest.mark.parametrize(
    ("case", "path", "body"),
    [
        ("unknown model", "/v1/completions", {"model": "none", "prompt": "x"}),
        ("too long", "/v1/completions", {"prompt": [300] * 100_000, "max_tokens": 4}),
        ("bad field", "/v1/completions", {"prompt": "x", "max_tokens": -1}),
        ("unload unknown", "/v1/unload_lora_adapter", {"lora_name": "none"}),
        ("load missing", "/v1/load_lora_adapter", {"lora_name": "none", "lora_path": "/nowhere"}),
    ],
)
async def test_errors_are_the_recorded_ones(
    client: httpx.AsyncClient, case: str, path: str, body: dict[str, Any]
) -> None:
    if "lora" not in path:
        body = {"model": await model_of(client), **body}
    answer = await client.post(path, json=body)
    recorded = recorded_json("errors.json")[case]
    assert answer.status_code == recorded["status"]
    seen, wanted = answer.json()["error"], recorded["body"]["error"]
    assert {**seen, "message": ""} == {**wanted, "message": ""}
    if case == "too long":  # a real server may have another context length
        assert re.sub(r"\d+", "N", seen["message"]) == re.sub(r"\d+", "N", wanted["message"])
    elif case != "unknown model":  # which lists the served names
        assert seen["message"] == wanted["message"]


@pytest.mark.parametrize("case", sorted(json.loads((RECORDED / "refusals.json").read_text())))
async def test_refusals_are_word_for_word_the_recorded_ones(client: httpx.AsyncClient, case: str) -> None:
    recorded = recorded_json("refusals.json")[case]
    request = dict(recorded["request"])
    if case == "context filled":
        first, _count = request.pop("prompt_of")
        limit = (await client.get("/v1/models")).json()["data"][0]["max_model_len"]
        request["prompt"] = [first] * limit
    answer = await client.post(recorded["path"], json=request)
    assert (answer.status_code, answer.json()) == (recorded["status"], recorded["body"])


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/v1/completions", {"prompt": "x", "cache_salt": ""}, "BadRequestError"),
        ("/v1/completions", {"prompt": "x", "max_tokens": 0}, "BadRequestError"),
        ("/v1/completions", {"prompt": "x", "max_tokens": "many"}, "Bad Request"),
        ("/v1/chat/completions", {"messages": "hello"}, "Bad Request"),
        ("/v1/load_lora_adapter", {}, "Bad Request"),
        ("/v1/load_lora_adapter", {"lora_name": "", "lora_path": "x"}, "InvalidUserInput"),
    ],
)
async def test_bad_fields_are_a_400_of_the_right_type(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], kind: str
) -> None:
    if "lora" not in path:
        body = {"model": await model_of(client), **body}
    answer = await client.post(path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (400, kind, 400)


async def test_malformed_json_is_a_400(client: httpx.AsyncClient) -> None:
    headers = {"content-type": "application/json"}
    answer = await client.post("/v1/completions", content=b'{"model": "tiny", "prom', headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == 400


async def test_models_have_the_recorded_shape(client: httpx.AsyncClient) -> None:
    answer = (await client.get("/v1/models")).json()
    assert shape(answer["data"][0]) == shape(recorded_json("models.json")["data"][0])


async def test_a_route_that_does_not_exist_answers_in_another_shape(client: httpx.AsyncClient) -> None:
    answer = await client.get("/no/such/route")
    assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})


async def test_every_recorded_metric_family_is_there(client: httpx.AsyncClient) -> None:
    await client.post("/v1/completions", json={"model": await model_of(client), "prompt": "x", "max_tokens": 2})
    page = (await client.get("/metrics")).text
    told = {line.split()[2]: line.split()[3] for line in page.splitlines() if line.startswith("# TYPE vllm:")}
    recorded = dict(line.split() for line in (RECORDED / "metric-families.txt").read_text().splitlines())
    assert {name: told.get(name) for name in recorded} == recorded
    assert parse_metrics(page).block_tokens
    assert [family.name for family in text_string_to_metric_families(page)]


async def test_text_is_stable_and_ids_name_the_request(client: httpx.AsyncClient) -> None:
    body = {"model": await model_of(client), "prompt": "the same", "max_tokens": 3, "temperature": 0}
    name = uuid.uuid4().hex
    first = (await client.post("/v1/completions", json=body, headers={"X-Request-Id": name})).json()
    second = (await client.post("/v1/completions", json={**body, "request_id": name})).json()
    assert first["id"] == second["id"] == f"cmpl-{name}"
    assert first["choices"][0]["text"] == second["choices"][0]["text"]


async def test_a_list_of_prompts_gives_a_choice_each(client: httpx.AsyncClient) -> None:
    body = {"model": await model_of(client), "max_tokens": 2, "prompt": [[301, 302], [303, 304, 305]]}
    answer = (await client.post("/v1/completions", json=body)).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert answer["usage"]["prompt_tokens"] == 5


async def test_asleep_it_looks_healthy_and_requests_wait(client: httpx.AsyncClient) -> None:
    body = {"model": await model_of(client), "prompt": [400, 401], "max_tokens": 1}
    assert (await client.post("/sleep?level=1")).json() == {"status": "sleeping", "level": 1}
    try:
        assert (await client.get("/is_sleeping")).json() == {"is_sleeping": True}
        assert (await client.get("/health")).status_code == 200
        waiting = asyncio.create_task(client.post("/v1/completions", json=body))
        await asyncio.sleep(0.3)
        assert not waiting.done()
    finally:
        woken = await client.post("/wake_up")
    assert woken.json() == {"status": "awake", "tags": None}
    assert (await asyncio.wait_for(waiting, 60)).status_code == 200
    assert (await client.get("/is_sleeping")).json() == {"is_sleeping": False}


async def test_closing_the_connection_cancels(client: httpx.AsyncClient) -> None:
    body = {"model": await model_of(client), "prompt": [500, 501], "max_tokens": 900, "ignore_eos": True}
    with pytest.raises(httpx.TimeoutException):
        await client.post("/v1/completions", json=body, timeout=0.3)
    for _ in range(100):
        if parse_metrics((await client.get("/metrics")).text).running == 0:
            return
        await asyncio.sleep(0.1)
    pytest.fail("a cancelled request still runs after 10 s")


def test_recorded_events_decode() -> None:
    decoded = []
    for line in (RECORDED / "kv-events.jsonl").read_text().splitlines():
        decoded.append(decode_batch(bytes.fromhex(json.loads(line)["payload"])))
    cleared, stored = decoded[0]
    assert cleared == BlocksCleared(0)
    assert isinstance(stored, BlocksStored)
    assert (len(stored.hashes), stored.parent, stored.block_tokens, len(stored.token_ids)) == (3, None, 32, 96)
    salted, tuned = decoded[1][0], decoded[2][0]
    assert isinstance(salted, BlocksStored)
    assert isinstance(tuned, BlocksStored)
    assert (stored.salt, salted.salt, tuned.salt) == (None, "tenant-a", None)
    assert (stored.adapter, salted.adapter, tuned.adapter) == (None, None, "static1")
    assert all(isinstance(event, BlocksRemoved) and len(event.hashes) == 1 for event in decoded[4])


def test_positional_events_of_older_engines_decode_alike() -> None:
    raw = [["BlockStored", [7, 8], None, [1, 2, 3, 4], 2, None, "GPU"], ["BlockRemoved", [7]], ["AllBlocksCleared"]]
    stored, removed, cleared = decode_batch(msgspec.msgpack.encode([0.5, raw]))
    assert stored == BlocksStored((7, 8), None, (1, 2, 3, 4), 2, None, None)
    assert removed == BlocksRemoved((7,))
    assert cleared == BlocksCleared()


@pytest.mark.parametrize(
    "payload", [b"", b"\xc1", msgspec.msgpack.encode([1.0]), msgspec.msgpack.encode([1.0, [["?"]]])]
)
def test_other_bytes_are_a_value_error(payload: bytes) -> None:
    with pytest.raises(ValueError, match="KV event"):
        decode_batch(payload)


def test_simulated_events_have_the_recorded_keys() -> None:
    recorded: dict[str, Any] = {}
    for line in (RECORDED / "kv-events.jsonl").read_text().splitlines():
        for event in json.loads(line)["decoded"][1]:
            recorded[event["type"]] = list(event)
    assert list(simulated.stored([1], None, [1], 1, None, None, None)) == recorded["BlockStored"]
    assert list(simulated.removed(1)) == recorded["BlockRemoved"]
    assert list(simulated.cleared()) == recorded["AllBlocksCleared"]


@pytest.mark.skipif(URL is None, reason="STOKER_VLLM_URL is not set: no real vLLM to hold the contracts against")
async def test_what_is_held_to_the_contracts_is_a_real_vllm(client: httpx.AsyncClient) -> None:
    metrics = (await client.get("/metrics")).text
    assert "vllm:" in metrics
    assert (await client.get("/sim/totals")).status_code == (404 if client.base_url == URL else 200)
