"""The simulator as a process: flags, limits over HTTP, cancellation, events with gaps, incarnations."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys

import httpx
import pytest

from connectors.engines import BlocksCleared, EventSource, Gap, KvEvent
from connectors.engines.kv_events import KvEventStream
from connectors.engines.vllm import VllmEngine
from schemas.errors import RefusedCommand, StackFault, TransientFault
from stoker.simulator.process import RunningSimulator, simulator, start_simulator, stop_process

pytestmark = pytest.mark.slow

DEADLINE_S = 120.0


def test_a_wrong_flag_is_named() -> None:
    with pytest.raises(StackFault, match="max_cpu_loras"):
        start_simulator("--max-loras", "4", "--max-cpu-loras", "1")
    command = [sys.executable, "-m", "stoker.simulator", "--lora-modules", "nonsense"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": "."})
    assert ended.returncode == 2
    assert "NAME=PATH" in ended.stderr


def test_a_port_in_use_is_named() -> None:
    with simulator() as first:
        port = int(first.url.rsplit(":", 1)[1])
        with pytest.raises(StackFault, match=str(port)):
            start_simulator(port=port)


async def test_state_is_volatile_and_each_start_another_incarnation() -> None:
    totals = []
    for _ in range(2):
        with simulator("--name", "r7") as running:
            async with httpx.AsyncClient(base_url=running.url) as client:
                await client.post("/v1/completions", json={"model": "tiny", "prompt": "x " * 40, "max_tokens": 1})
                totals.append((await client.get("/sim/totals")).json())
            assert totals[-1]["incarnation"] == running.incarnation
    assert totals[0]["name"] == "r7"
    assert totals[0]["incarnation"] != totals[1]["incarnation"]
    assert totals[0]["created_tokens"] == totals[1]["created_tokens"] == 32


async def test_the_ledger_shows_that_a_repeated_apply_creates_nothing() -> None:
    with simulator() as running:
        engine = VllmEngine(running.url)
        for _ in range(2):
            await engine.warm_tokens("tiny", list(range(300, 400)), request_id="command-1")
        await engine.close()
        async with httpx.AsyncClient(base_url=running.url) as client:
            entries = (await client.get("/sim/ledger", params={"request_id": "command-1"})).json()
    assert [entry["created_tokens"] for entry in entries] == [96, 0]
    assert [entry["cached_tokens"] for entry in entries] == [0, 96]


async def test_switched_off_routes_are_told_apart_from_missing_adapters() -> None:
    with simulator("--no-runtime-adapters", "--no-dev-mode", "--no-prompt-tokens-details") as running:
        engine = VllmEngine(running.url)
        told = await engine.capabilities()
        assert (told.runtime_adapters, told.sleep, told.usage_details) == (False, False, False)
        for call in (engine.load_adapter("a", "/a"), engine.reset_prefix_cache(), engine.unload_adapter("a")):
            with pytest.raises(RefusedCommand, match="switched this route off"):
                await call
        warmed = await engine.warm_tokens("tiny", [300] * 40, request_id="w")
        assert (warmed.cached_tokens, warmed.created_tokens) == (None, None)
        assert await engine.is_sleeping() is False
        await engine.close()


async def test_a_full_queue_is_503_in_vllms_words_and_transient() -> None:
    with simulator("--max-num-queued-reqs", "1", "--prefill-ms-per-token", "20") as running:
        engine = VllmEngine(running.url)
        slow = asyncio.create_task(engine.warm_tokens("tiny", [300] * 100, request_id="slow"))
        async with httpx.AsyncClient(base_url=running.url) as client:
            await in_flight(client, 1)
            for stream in (False, True):
                body = {"model": "tiny", "prompt": "x", "max_tokens": 1, "stream": stream}
                answer = await client.post("/v1/completions", json=body)
                error = answer.json()["error"]
                assert (answer.status_code, error["type"], error["code"]) == (503, "Service Unavailable", 503)
            with pytest.raises(TransientFault, match="503"):
                await engine.warm_tokens("tiny", [301], request_id="refused")
        await slow
        assert (await engine.metrics()).rejections == 3
        await engine.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_closing_the_connection_cancels(stream: bool) -> None:
    with simulator("--decode-ms-per-token", "50") as running:
        async with httpx.AsyncClient(base_url=running.url) as client:
            body = {"model": "tiny", "prompt": "x", "max_tokens": 10_000, "stream": stream}
            async with asyncio.TaskGroup() as group:
                task = group.create_task(consume(client, body))
                await in_flight(client, 1)
                task.cancel()
            await in_flight(client, 0)
            totals = (await client.get("/sim/totals")).json()
    assert totals["outcomes"] == {"abort": 1}
    assert totals["blocks"]["held"] == 0


async def test_a_call_that_is_cancelled_twice_is_cancelled_at_the_engine() -> None:
    """As when two who want it ended say so at once: the second must not interrupt the closing of the connection."""
    with simulator("--prefill-ms-per-token", "60000") as running:
        engine = VllmEngine(running.url)
        async with httpx.AsyncClient(base_url=running.url) as client:
            call = asyncio.create_task(engine.warm_tokens("tiny", [300] * 100, request_id="twice"))
            await in_flight(client, 1)
            for _ in range(10):
                call.cancel()
                await asyncio.sleep(0)
            with contextlib.suppress(asyncio.CancelledError):
                await call
            await in_flight(client, 0)
        await engine.close()


async def consume(client: httpx.AsyncClient, body: dict[str, object]) -> None:
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        async for _ in answer.aiter_bytes():
            pass


async def in_flight(client: httpx.AsyncClient, wanted: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while (await client.get("/load")).json()["server_load"] != wanted:
            await asyncio.sleep(0.02)


async def test_a_late_subscriber_gets_the_whole_state() -> None:
    with simulator("--events-port", "0") as running:
        engine = VllmEngine(running.url)
        await engine.warm_tokens("tiny", [300] * 40, request_id="before")
        events = engine.kv_events()
        assert isinstance(await asyncio.wait_for(anext(events), DEADLINE_S), BlocksCleared)
        stored = await asyncio.wait_for(anext(events), DEADLINE_S)
        assert getattr(stored, "token_ids", ()) == (300,) * 32
        await events.aclose()
        await engine.close()


async def test_history_that_is_no_longer_kept_is_a_gap() -> None:
    with simulator("--events-port", "0", "--events-buffer", "1") as running:
        engine = VllmEngine(running.url)
        for first in (300, 301):
            await engine.warm_tokens("tiny", [first] * 40, request_id="before")
        events = engine.kv_events()
        assert isinstance(await asyncio.wait_for(anext(events), DEADLINE_S), Gap)
        await events.aclose()
        await engine.close()


async def test_a_new_process_at_the_same_port_is_a_gap_and_then_complete() -> None:
    first = start_simulator("--events-port", "0")
    ports = [endpoint.rsplit(":", 1)[1] for endpoint in (first.url, first.events or "", first.replay or "")]
    seen: list[KvEvent] = []
    task = asyncio.create_task(collect(first, seen))
    try:
        await wait_for(lambda: len(seen) == 1)
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
        flags = ("--events-port", ports[1], "--replay-port", ports[2])
        second = await asyncio.to_thread(start_simulator, *flags, port=int(ports[0]))
        try:
            engine = VllmEngine(second.url)
            await engine.warm_tokens("tiny", [300] * 40, request_id="after")
            await wait_for(lambda: any(getattr(event, "token_ids", ()) for event in seen))
            assert isinstance(seen[1], Gap | BlocksCleared)
            assert isinstance(seen[-2], BlocksCleared)
            await engine.close()
        finally:
            stop_process(second.process)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        stop_process(first.process)


async def collect(running: RunningSimulator, seen: list[KvEvent]) -> None:
    assert running.events is not None
    stream = KvEventStream(EventSource(0, running.events, running.replay, "kv-events"))
    try:
        async for event in stream.events():
            seen.append(event)
    finally:
        stream.close()


async def wait_for(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.02)
