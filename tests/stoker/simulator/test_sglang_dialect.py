"""The simulator as SGLang, over HTTP: what its adapter has to live with, and how it does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from connectors.engines import Salt, Tokens
from connectors.engines.residency import BlockView
from connectors.engines.sglang import SglangEngine
from schemas.errors import RefusedCommand, TransientFault
from stoker.simulator.process import RunningSimulator, simulator

DEADLINE_S = 60.0
BLOCK = 16


@pytest.fixture(scope="module")
def running() -> Iterator[RunningSimulator]:
    flags = ("--block-tokens", str(BLOCK), "--max-loras", "2", "--max-cpu-loras", "2", "--prefill-ms-per-token", "1")
    with simulator("--dialect", "sglang", *flags, "--prefill-chunk-tokens", "20") as started:
        yield started


@pytest_asyncio.fixture
async def client(running: RunningSimulator) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=running.url, timeout=DEADLINE_S, trust_env=False) as opened:
        yield opened


@pytest_asyncio.fixture
async def engine(running: RunningSimulator) -> AsyncIterator[SglangEngine]:
    opened = SglangEngine(running.url)
    yield opened
    await opened.close()


@pytest.fixture(scope="module")
def adapter_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("adapter")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8}))
    return str(folder)


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + DEADLINE_S
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not happen within {DEADLINE_S:g} s"
        await asyncio.sleep(0.02)


async def test_bodies_are_flat_nested_or_of_adapter_calls(client: httpx.AsyncClient) -> None:
    native = await client.post("/generate", json={"sampling_params": {"max_new_tokens": 1}})
    assert (native.status_code, list(native.json()), list(native.json()["error"])) == (400, ["error"], ["message"])
    flat = await client.post("/v1/completions", json={"prompt": "x", "max_tokens": 0})
    assert (flat.status_code, flat.json()["object"], flat.json()["type"]) == (400, "error", "Bad Request")
    unloaded = await client.post("/unload_lora_adapter", json={"lora_name": "none"})
    assert (unloaded.status_code, unloaded.json()["success"], unloaded.json()["loaded_adapters"]) == (400, False, {})
    missing = await client.get("/version")
    assert (missing.status_code, missing.json()) == (404, {"detail": "Not Found"})


async def test_the_native_route_tells_what_was_cached_and_takes_no_salt(client: httpx.AsyncClient) -> None:
    ids = list(range(300, 300 + 3 * BLOCK + 1))
    body = {"input_ids": ids, "sampling_params": {"max_new_tokens": 1}, "cache_salt": "tenant-a"}
    first, second = [(await client.post("/generate", json=body)).json()["meta_info"] for _ in range(2)]
    assert (first["prompt_tokens"], first["cached_tokens"], second["cached_tokens"]) == (len(ids), 0, 3 * BLOCK)
    unsalted = {"input_ids": ids, "sampling_params": {"max_new_tokens": 1}}
    assert (await client.post("/generate", json=unsalted)).json()["meta_info"]["cached_tokens"] == 3 * BLOCK


async def test_a_gateways_salted_request_finds_what_was_warmed(client: httpx.AsyncClient, engine: SglangEngine) -> None:
    ids, salt = list(range(1300, 1300 + 3 * BLOCK + 1)), uuid.uuid4().hex
    await engine.warm_tokens("tiny", ids, salt=Salt(salt), request_id="warm")
    body = {"model": "tiny", "prompt": ids, "max_tokens": 1}
    for given, cached in ((salt, 3 * BLOCK), ("another", 0), (None, 0)):
        answer = await client.post("/v1/completions", json=body | ({"cache_salt": given} if given else {}))
        assert answer.json()["usage"]["prompt_tokens_details"] == {"cached_tokens": cached}


async def test_what_was_given_up_is_aborted(client: httpx.AsyncClient, engine: SglangEngine) -> None:
    ids = list(range(10_000, 30_000))  # 20 s of prefill
    with pytest.raises(TransientFault, match="did not answer"):
        await engine.warm_tokens("tiny", ids, request_id="slow", timeout_s=0.2)

    async def free() -> bool:
        return (await engine.metrics()).running == 0

    await until(free, "the abort")
    entries = [entry for entry in (await client.get("/sim/ledger")).json() if entry["request_id"].startswith("slow.")]
    assert [entry["outcome"] for entry in entries] == ["abort"]
    assert entries[0]["created_tokens"] < len(ids)


async def test_an_id_in_flight_is_refused_and_an_abort_reaches_every_id_that_begins_with_it(
    client: httpx.AsyncClient,
) -> None:
    body = {"input_ids": list(range(30_000, 50_000)), "sampling_params": {"max_new_tokens": 1}}
    running = [asyncio.create_task(client.post("/generate", json=body | {"rid": rid})) for rid in ("job-1", "job-10")]

    async def all_there() -> bool:
        load = (await client.get("/v1/loads")).json()["loads"][0]
        return bool(load["num_running_reqs"] + load["num_waiting_reqs"] == 2)

    await until(all_there, "both requests")
    again = await client.post("/generate", json=body | {"rid": "job-1"})
    assert (again.status_code, again.json()["error"]["message"]) == (400, "Duplicate request ID detected: job-1")
    await client.post("/abort_request", json={"rid": "job-1"})
    ends = [answer.json()["meta_info"]["finish_reason"]["type"] for answer in await asyncio.gather(*running)]
    assert ends == ["abort", "abort"]


async def test_a_full_queue_is_a_503_that_passes() -> None:
    flags = ("--dialect", "sglang", "--max-num-queued-reqs", "1", "--prefill-ms-per-token", "5")
    with simulator(*flags) as small:
        engine = SglangEngine(small.url)
        first = asyncio.create_task(engine.warm_tokens("tiny", list(range(300, 400)), request_id="a"))

        async def busy() -> bool:
            return (await engine.metrics()).running == 1

        await until(busy, "the first request")
        with pytest.raises(TransientFault, match="queue is full"):
            await engine.warm_tokens("tiny", [300], request_id="b")
        await first
        assert (await engine.warm_tokens("tiny", [300], request_id="b")).prompt_tokens == 1
        await engine.close()


async def test_an_unloaded_adapter_comes_back_by_use_but_not_by_ours(
    client: httpx.AsyncClient, engine: SglangEngine, adapter_path: str
) -> None:
    await engine.load_adapter("a@1", adapter_path)
    await engine.unload_adapter("a@1")
    with pytest.raises(RefusedCommand, match="not loaded"):
        await engine.warm_tokens("tiny", [300], adapter="a@1", request_id="r")
    assert await engine.adapters() == ()
    body = {"model": "tiny:a@1", "prompt": "x", "max_tokens": 1}
    assert (await client.post("/v1/completions", json=body)).status_code == 200
    assert [adapter.name for adapter in await engine.adapters()] == ["a@1"]
    await engine.unload_adapter("a@1")


async def test_a_pinned_adapter_stays_when_others_have_to_go(engine: SglangEngine, adapter_path: str) -> None:
    await engine.load_adapter("pinned@1", adapter_path, pinned=True)
    await engine.pin_adapter("pinned@1")
    for name in ("b@1", "c@1"):
        await engine.load_adapter(name, adapter_path)
    assert [adapter.name for adapter in await engine.adapters()] == ["pinned@1", "c@1"]
    with pytest.raises(RefusedCommand, match="one slot has to be left"):
        await engine.load_adapter("d@1", adapter_path, pinned=True)
    for name in ("pinned@1", "c@1"):
        await engine.unload_adapter(name)


async def test_a_reloaded_adapter_finds_nothing_of_its_former_life(engine: SglangEngine, adapter_path: str) -> None:
    ids = list(range(9000, 9000 + 2 * BLOCK + 1))
    for _life in range(2):
        await engine.load_adapter("again@1", adapter_path)
        found = await engine.warm_tokens("tiny", ids, adapter="again@1", request_id="r")
        assert found.cached_tokens == 0
        await engine.unload_adapter("again@1")


async def test_events_tell_what_is_resident_of_each_salt() -> None:
    flags = ("--dialect", "sglang", "--block-tokens", str(BLOCK), "--no-runtime-adapters", "--events-port", "0")
    with simulator(*flags) as plain:
        engine, view = SglangEngine(plain.url), BlockView()
        able = await engine.capabilities()
        assert (able.runtime_adapters, len(able.event_sources)) == (False, 1)
        events = engine.kv_events()

        async def watch() -> None:
            async for event in events:
                view.apply(event)

        task = asyncio.create_task(watch())
        try:
            ids = list(range(300, 300 + 4 * BLOCK + 1))
            await engine.warm_tokens("tiny", ids[: 2 * BLOCK], request_id="r")
            await engine.warm_tokens("tiny", ids, salt=Salt("tenant-a"), request_id="r")

            async def heard() -> bool:
                told = [view.resident_tokens(ids, salt=salt) for salt in (None, "tenant-a", "tenant-b")]
                return told == [2 * BLOCK, 4 * BLOCK, 0]

            await until(heard, "hearing of both trees")
            assert view.complete
            await until(engine.reset_prefix_cache, "a flush")
            await engine.warm_tokens("tiny", ids[:BLOCK], request_id="r")

            async def forgotten() -> bool:
                return len(view) == 1

            await until(forgotten, "hearing of the flush")
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await events.aclose()
            await engine.close()


async def test_an_engine_with_adapters_has_no_events_to_follow(engine: SglangEngine) -> None:
    assert (await engine.capabilities()).event_sources == ()
    assert [event async for event in engine.kv_events()] == []
    seen = await engine.resident("tiny", Tokens([300]), request_id="r")
    assert seen.prompt_tokens == 1
