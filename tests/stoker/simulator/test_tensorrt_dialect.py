"""The simulator as TensorRT-LLM, over HTTP: what its adapter has to live with, and how it does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from connectors.engines import Salt, Tokens
from connectors.engines.tensorrt import TensorrtEngine
from connectors.engines.tensorrt_answers import Iterations
from schemas.errors import RefusedCommand, TransientFault
from stoker.simulator.process import RunningSimulator, simulator

DEADLINE_S = 60.0
BLOCK = 16
FLAGS = ("--dialect", "tensorrt_llm", "--block-tokens", str(BLOCK))


@pytest.fixture(scope="module")
def running() -> Iterator[RunningSimulator]:
    with simulator(*FLAGS, "--prefill-ms-per-token", "1", "--prefill-chunk-tokens", "20") as started:
        yield started


@pytest_asyncio.fixture
async def client(running: RunningSimulator) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=running.url, timeout=DEADLINE_S, trust_env=False) as opened:
        yield opened


@pytest_asyncio.fixture
async def engine(running: RunningSimulator) -> AsyncIterator[TensorrtEngine]:
    opened = TensorrtEngine(running.url)
    yield opened
    await opened.close()


def adapter(folder: Path, rank: int = 8) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank}))
    return str(folder)


def asking(prompt: Any, **more: Any) -> dict[str, Any]:
    return {"model": "any", "prompt": prompt, "max_tokens": 1, **more}


async def test_bodies_are_flat_or_one_sentence_and_any_model_is_taken(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/completions", json=asking("hello"))
    assert answer.json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    unknown = await client.post("/v1/completions", json=asking("hello", request_id="r"))
    assert (unknown.status_code, list(unknown.json())) == (400, ["error"])
    salted = await client.post("/v1/completions", json=asking("hello", cache_salt="s"))
    assert "cache_salt" in salted.json()["error"]
    long = await client.post("/v1/completions", json=asking([300] * 200_000))
    assert (long.status_code, long.json()["type"]) == (400, "BadRequestError")
    assert "should not exceed" in long.json()["message"]


async def test_the_models_tell_no_adapter_and_no_length(client: httpx.AsyncClient) -> None:
    (card,) = (await client.get("/v1/models")).json()["data"]
    assert (card["id"], card["owned_by"], set(card)) == (
        "tiny",
        "tensorrt_llm",
        {"id", "object", "created", "owned_by"},
    )


async def test_it_describes_the_fields_that_its_adapter_asks_for(client: httpx.AsyncClient) -> None:
    schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
    assert {"priority", "lora_request"} <= set(schemas["CompletionRequest"]["properties"])
    assert {"priority", "cache_salt"} <= set(schemas["ChatCompletionRequest"]["properties"])
    assert "cache_salt" not in schemas["CompletionRequest"]["properties"]


async def test_salted_ids_have_a_tree_of_their_own_by_the_chat_route(engine: TensorrtEngine) -> None:
    ids = [*range(400, 400 + 2 * BLOCK + 1)]
    for salt, found in ((None, 0), (Salt("a"), 0), (Salt("a"), 2 * BLOCK), (Salt("b"), 0)):
        seen = await engine.resident("tiny", Tokens(ids), salt=salt, request_id="r")
        assert seen.cached_tokens == found


async def test_an_adapter_is_known_by_its_number_alone(client: httpx.AsyncClient, tmp_path: Path) -> None:
    lora = {"lora_name": "german", "lora_int_id": 7, "lora_path": adapter(tmp_path / "a")}
    ids = [*range(500, 500 + BLOCK + 1)]
    first = await client.post("/v1/completions", json=asking(ids, lora_request=lora))
    assert first.status_code == 200, first.text
    renamed = lora | {"lora_name": "french", "lora_path": "/nowhere"}
    again = await client.post("/v1/completions", json=asking(ids, lora_request=renamed))
    assert again.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == BLOCK
    other = await client.post("/v1/completions", json=asking(ids, lora_request=renamed | {"lora_int_id": 8}))
    assert (other.status_code, other.json()["object"]) == (400, "error")
    assert "Failed to load LoRA adapter" in other.json()["message"]


async def test_an_engine_without_lora_answers_with_the_base_model_and_is_found_out(tmp_path: Path) -> None:
    with simulator(*FLAGS, "--no-runtime-adapters") as off:
        async with httpx.AsyncClient(base_url=off.url, trust_env=False) as client:
            lora = {"lora_name": "german", "lora_int_id": 7, "lora_path": "/nowhere"}
            assert (await client.post("/v1/completions", json=asking("hello", lora_request=lora))).status_code == 200
        port = TensorrtEngine(off.url)
        with pytest.raises(RefusedCommand, match="runs without LoRA"):
            await port.load_adapter("german", adapter(tmp_path / "a"))
        assert await port.adapters() == ()
        await port.close()


async def test_iterations_are_told_once(client: httpx.AsyncClient, engine: TensorrtEngine) -> None:
    await engine.warm_tokens("tiny", "some words", request_id="r")
    first = (await client.get("/metrics")).content
    assert (await client.get("/metrics")).json() == []
    (told,) = engine._http.shaped(Iterations, httpx.Response(200, content=first), "/metrics")
    assert told.kv_cache_stats is not None
    assert told.kv_cache_stats.tokens_per_block == BLOCK


async def test_a_request_whose_client_went_away_ends_after_a_second(
    client: httpx.AsyncClient, engine: TensorrtEngine
) -> None:
    await engine.capabilities()
    with pytest.raises(TransientFault):
        await engine.warm_tokens("tiny", [*range(1_000, 5_000)], request_id="r", timeout_s=0.2)
    assert (await engine.metrics()).running == 1
    deadline = asyncio.get_running_loop().time() + DEADLINE_S
    while (await engine.metrics()).running:
        assert asyncio.get_running_loop().time() < deadline, "the request goes on"
        await asyncio.sleep(0.05)
    entries = (await client.get("/sim/ledger")).json()
    assert entries[-1]["outcome"] == "abort"


def test_it_has_no_queue_limits() -> None:
    with pytest.raises(Exception, match="no limit of its queue"), simulator(*FLAGS, "--max-num-queued-reqs", "1"):
        pass
