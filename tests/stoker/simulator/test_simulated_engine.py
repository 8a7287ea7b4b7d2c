"""The replica on its clock: turns, chunks, cancellation, queue limits, sleep, adapters, books."""

from __future__ import annotations

import asyncio
import json
from array import array
from pathlib import Path
from typing import Any

import pytest

from connectors.engines.vllm_metrics import parse_metrics
from stoker.simulator.config import SimulatorConfig
from stoker.simulator.engine import SimulatedEngine
from stoker.simulator.exposition import Exposition
from stoker.simulator.work import AdapterFault, QueueFull, Work

BLOCK = 4


def engine(**settings: Any) -> SimulatedEngine:
    base: dict[str, Any] = {"block_tokens": BLOCK, "num_blocks": 65, "weight_bytes": 1, "kv_bytes_per_token": 1}
    return SimulatedEngine(SimulatorConfig(**(base | settings)))


def work(ids: list[int], answer: int = 1, name: str = "r", **given: Any) -> Work:
    return Work(name, array("I", ids).tobytes(), answer, "length", **given)


async def answered(replica: SimulatedEngine, request: Work) -> int:
    async with replica.request(request) as words:
        return len([word async for word in words])


async def test_a_second_request_finds_the_first_ones_blocks() -> None:
    replica, ids = engine(), list(range(10))
    first, second = work(ids), work(ids)
    await answered(replica, first)
    await answered(replica, second)
    assert (first.cached_tokens, first.created_tokens) == (0, 8)
    assert (second.cached_tokens, second.created_tokens) == (8, 0)


async def test_the_answers_blocks_are_found_by_the_next_turn() -> None:
    replica, ids = engine(), list(range(6))
    first = work(ids, answer=8)
    await answered(replica, first)
    words = replica.tokenizer.answer(first.prompt, 8)
    following = array("I")
    following.frombytes(first.prompt + replica.tokenizer.answer_ids(words))
    second = work([*following.tolist(), 99])
    await answered(replica, second)
    # 6 + 8 tokens, but the last word was never fed back: 13 computed ones fill three blocks of 4.
    assert second.cached_tokens == 12


async def test_prefills_take_turns_and_queueing_is_visible() -> None:
    replica = engine(prefill_ms_per_token=20.0)
    slow, quick = work(list(range(8)), name="slow"), work([50, 51], name="quick")
    async with asyncio.TaskGroup() as group:
        group.create_task(answered(replica, slow))
        await asyncio.sleep(0.02)
        group.create_task(answered(replica, quick))
        await asyncio.sleep(0.02)
        assert [request.request_id for request in replica.waiting] == ["quick"]
        assert len(replica.running) == 1
        assert replica.pool.usage > 0
    queue = replica.timings.by_name["request_queue_time_seconds"]
    assert queue.total > 0.08
    assert replica.pool.usage == 0


async def test_leaving_early_keeps_finished_chunks_only() -> None:
    replica = engine(prefill_ms_per_token=20.0, prefill_chunk_tokens=4)
    request = work(list(range(40)))
    task = asyncio.create_task(answered(replica, request))
    while request.created_tokens < 8:
        await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (replica.in_flight, replica.pool.held) == (0, 0)
    assert 8 <= request.created_tokens < 40
    assert replica.pool.idle * BLOCK == request.created_tokens
    assert replica.ledger.entries[-1].outcome == "abort"


async def test_leaving_the_queue_leaves_nothing_behind() -> None:
    replica = engine(prefill_ms_per_token=10.0)
    running = asyncio.create_task(answered(replica, work(list(range(20)))))
    await asyncio.sleep(0.01)
    queued = asyncio.create_task(answered(replica, work([1])))
    await asyncio.sleep(0.01)
    queued.cancel()
    await asyncio.gather(queued, return_exceptions=True)
    assert not replica.waiting
    assert await running == 1


async def test_a_request_whose_consumer_never_starts_is_forgotten() -> None:
    replica = engine()
    async with replica.request(work([1])):
        pass
    assert replica.in_flight == 0


async def test_queue_limits_refuse_and_count() -> None:
    replica = engine(prefill_ms_per_token=10.0, max_num_queued_reqs=2, max_num_queued_tokens=1000)
    tasks = [asyncio.create_task(answered(replica, work([n] * 9))) for n in range(2)]
    await asyncio.sleep(0.01)
    with pytest.raises(QueueFull):
        await answered(replica, work([5]))
    assert replica.rejections == {"max_num_queued_reqs": 1, "max_num_queued_tokens": 0}
    await asyncio.gather(*tasks)
    assert await answered(replica, work([5])) == 1


async def test_the_token_limit_counts_prompts_in_prefill() -> None:
    replica = engine(prefill_ms_per_token=10.0, max_num_queued_tokens=8)
    task = asyncio.create_task(answered(replica, work([1] * 8)))
    await asyncio.sleep(0.01)
    with pytest.raises(QueueFull):
        await answered(replica, work([5]))
    assert replica.rejections["max_num_queued_tokens"] == 1
    await task


@pytest.mark.parametrize(("policy", "order"), [("fcfs", ["a", "b"]), ("priority", ["b", "a"])])
async def test_priority_runs_lower_values_first_if_switched_on(policy: str, order: list[str]) -> None:
    replica = engine(prefill_ms_per_token=5.0, scheduling_policy=policy)
    await replica.sleep(1, "keep")  # so that both wait, however slow this machine is
    tasks = [
        asyncio.create_task(answered(replica, work([priority], name=name, priority=priority)))
        for name, priority in (("a", 5), ("b", 1))
    ]
    while len(replica.waiting) < 2:
        await asyncio.sleep(0)
    replica.wake_up()
    await asyncio.gather(*tasks)
    assert [entry.request_id for entry in replica.ledger.entries] == order


async def test_a_full_pool_makes_requests_wait() -> None:
    replica = engine(num_blocks=5, decode_ms_per_token=20.0)
    first = asyncio.create_task(answered(replica, work(list(range(9)), answer=4)))
    await asyncio.sleep(0.01)
    second = asyncio.create_task(answered(replica, work(list(range(20, 29)))))
    await asyncio.sleep(0.01)
    assert len(replica.waiting) == 1
    assert await asyncio.gather(first, second) == [4, 1]


async def test_sleep_forgets_and_makes_wait() -> None:
    replica, ids = engine(), list(range(9))
    await answered(replica, work(ids))
    await replica.sleep(1, "abort")
    task = asyncio.create_task(answered(replica, work(ids)))
    await asyncio.sleep(0.02)
    assert len(replica.waiting) == 1
    replica.wake_up()
    assert await task == 1
    assert replica.ledger.entries[-1].cached_tokens == 0


async def test_sleep_aborts_what_runs() -> None:
    replica = engine(decode_ms_per_token=10.0)
    task = asyncio.create_task(answered(replica, work([1, 2], answer=200)))
    await asyncio.sleep(0.05)
    await replica.sleep(1, "abort")
    assert 0 < await task < 200
    assert replica.ledger.entries[-1].outcome == "abort"
    assert replica.pool.held == 0


async def test_keep_freezes_and_wait_lets_end() -> None:
    replica = engine(decode_ms_per_token=5.0)
    task = asyncio.create_task(answered(replica, work([1, 2], answer=10)))
    await asyncio.sleep(0.01)
    await replica.sleep(0, "keep")
    await asyncio.sleep(0.1)
    assert not task.done()
    replica.wake_up()
    await replica.sleep(0, "wait")
    assert task.done()
    assert await task == 10


def adapter_folder(tmp_path: Path, name: str, rank: int) -> str:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank}))
    return str(folder)


async def test_adapters_take_slots_and_memory(tmp_path: Path) -> None:
    replica = engine(max_loras=1, max_cpu_loras=2)
    free = replica.memory.free_bytes
    await replica.load_adapter("a", adapter_folder(tmp_path, "a", 8))
    await replica.load_adapter("b", adapter_folder(tmp_path, "b", 8))
    assert replica.adapters.on_gpu == ["b"]
    assert replica.adapters.on_cpu == ["a", "b"]
    assert replica.memory.free_bytes == free - replica.config.adapter_bytes
    await answered(replica, work([1], adapter=replica.adapters.names["a"]))
    assert replica.adapters.on_gpu == ["a"]


@pytest.mark.parametrize(("rank", "missing"), [(64, False), (0, True)])
async def test_bad_adapters_are_not_registered(tmp_path: Path, rank: int, missing: bool) -> None:
    replica = engine()
    path = str(tmp_path / "nothing") if missing else adapter_folder(tmp_path, "big", rank)
    with pytest.raises(AdapterFault) as fault:
        await replica.load_adapter("x", path)
    assert fault.value.missing is missing
    assert not replica.adapters.names


async def test_a_batch_runs_at_most_max_loras_adapters(tmp_path: Path) -> None:
    replica = engine(max_loras=1, max_cpu_loras=2, decode_ms_per_token=5.0)
    for name in ("a", "b"):
        await replica.load_adapter(name, adapter_folder(tmp_path, name, 8))
    adapters = replica.adapters.names
    first = asyncio.create_task(answered(replica, work([1], answer=8, adapter=adapters["a"])))
    await asyncio.sleep(0.01)
    second = asyncio.create_task(answered(replica, work([1], adapter=adapters["b"])))
    await asyncio.sleep(0.01)
    assert [request.adapter_name for request in replica.running] == ["a"]
    assert await asyncio.gather(first, second) == [8, 1]


def test_memory_that_is_too_small_is_named() -> None:
    with pytest.raises(ValueError, match="memory_bytes"):
        engine(memory_bytes=1 << 20, weight_bytes=1 << 30)


async def test_only_answers_of_several_tokens_leave_a_trace_of_their_adapter() -> None:
    replica = engine(lora_modules=(("a", "/a"), ("b", "/b")))
    page = Exposition(replica)
    await answered(replica, work([1, 2], adapter=replica.adapters.names["a"]))
    assert parse_metrics(page.text().decode()).adapter_used_s == {}
    await answered(replica, work([1, 2], answer=3, adapter=replica.adapters.names["b"]))
    told = parse_metrics(page.text().decode())
    assert set(told.adapter_used_s) == {"b"}
    assert (told.busy_adapters, told.adapter_slots) == (frozenset(), 4)
