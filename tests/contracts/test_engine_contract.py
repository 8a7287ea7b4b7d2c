"""The engine port's contract, for the fake, the simulator in all its dialects, and real engines.

A real vLLM (STOKER_VLLM_URL) needs run-time LoRA updating, development mode and prompt token details;
STOKER_VLLM_EVENTS gives its KV event endpoints as `tcp://host:port[,tcp://host:replay_port[,topic]]` where
/kv_event_sources cannot be dialled from here, STOKER_VLLM_LORA the path of an adapter, and STOKER_VLLM_LORA_LARGE that
of one whose rank is above its limit. A real SGLang (STOKER_SGLANG_URL) needs --enable-lora, --enable-cache-report,
--enable-metrics and --page-size 16 or so; STOKER_SGLANG_LORA and STOKER_SGLANG_LORA_LARGE are its adapters. A real
TensorRT-LLM (STOKER_TENSORRT_URL) needs LoRA, `return_perf_metrics`, `enable_iter_perf_stats`, and no partial reuse;
STOKER_TENSORRT_LORA and STOKER_TENSORRT_LORA_LARGE are its adapters. Every test makes its own prompts, so a server may
be used again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import httpx
import pytest
import pytest_asyncio

from connectors.engines import ChatMessage, Engine, EventSource, Gap, Messages, Salt, Text, Tokens
from connectors.engines.fake import FakeEngine
from connectors.engines.residency import BlockView
from connectors.engines.sglang import SglangEngine
from connectors.engines.tensorrt import TensorrtEngine
from connectors.engines.vllm import VllmEngine
from connectors.engines.vllm_tiered import TieredVllmEngine
from connectors.tiers import LmcacheNode
from connectors.tiers.fake import FakeNode
from schemas.errors import RefusedCommand, TransientFault
from stoker.simulator.process import RunningSimulator, simulator

DEADLINE_S = 120.0
URL = os.environ.get("STOKER_VLLM_URL")
SGLANG_URL = os.environ.get("STOKER_SGLANG_URL")
TENSORRT_URL = os.environ.get("STOKER_TENSORRT_URL")
LONGEST = 2048
FLAGS = ("--block-tokens", "16", "--max-model-len", str(LONGEST))


@dataclass
class Target:
    """An engine under test, and what a test needs to know of it."""

    name: str
    engine: Engine
    model: str
    block: int
    adapter_path: str | None
    large_path: str | None = None
    url: str = ""

    @property
    def tells_more(self) -> bool:
        """Whether it tells created tokens, whether it sleeps, and in its metrics which adapters are busy."""
        return not isinstance(self.engine, SglangEngine | TensorrtEngine)

    def demand_sleep(self) -> None:
        """Skips the test where the engine cannot be put to sleep and asked about it."""
        if not self.tells_more:
            pytest.skip(f"{type(self.engine).__name__} cannot be asked whether it sleeps")

    def demand_rendering(self) -> None:
        """Skips the test where the engine does not tell the tokens of messages."""
        if isinstance(self.engine, TensorrtEngine):
            pytest.skip("TensorRT-LLM does not tell the tokens of messages")

    def demand_reset(self) -> None:
        """Skips the test where the engine cannot be told to forget its prefixes."""
        if isinstance(self.engine, TensorrtEngine):
            pytest.skip("TensorRT-LLM has no call to forget its prefixes")

    def demand_adapter_prompts(self) -> None:
        """Skips the test where nothing is sent with an adapter."""
        if isinstance(self.engine, TieredVllmEngine):
            pytest.skip("LMCache does not keep adapters apart, so no prompt is sent with one")

    async def sleep(self) -> None:
        """Put it to sleep, by whatever way there is."""
        if isinstance(self.engine, FakeEngine):
            self.engine.fall_asleep()
            return
        async with httpx.AsyncClient(base_url=self.url, trust_env=False) as client:
            (await client.post("/sleep?level=1", timeout=60)).raise_for_status()

    def ids(self, tokens: int) -> list[int]:
        """Fresh token ids that every vocabulary has."""
        return [random.SystemRandom().randrange(300, 4000) for _ in range(tokens)]

    def words(self, count: int) -> str:
        """Fresh text of so many words."""
        return " ".join(f"w{random.SystemRandom().randrange(10_000)}" for _ in range(count))


@pytest.fixture(scope="module")
def running_simulator() -> Iterator[RunningSimulator]:
    with simulator(*FLAGS, "--events-port", "0") as running:
        yield running


@pytest.fixture(scope="module")
def running_sglang_simulator() -> Iterator[RunningSimulator]:
    with simulator(*FLAGS, "--dialect", "sglang") as running:
        yield running


@pytest.fixture(scope="module")
def running_tensorrt_simulator() -> Iterator[RunningSimulator]:
    with simulator(*FLAGS, "--dialect", "tensorrt_llm") as running:
        yield running


@pytest.fixture(scope="module")
def adapter_paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """An adapter as it should be, and one whose rank is too large."""
    folders = [tmp_path_factory.mktemp("adapter") for _ in range(2)]
    for folder, rank in zip(folders, (8, 512), strict=True):
        (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank}))
    return [str(folder) for folder in folders]


REAL = {"vllm": URL, "sglang": SGLANG_URL, "tensorrt": TENSORRT_URL}
KINDS = [
    "fake",
    "simulator",
    # Each kind takes a quarter of the quick lane's two minutes; what is special about one has tests of its own.
    *(pytest.param(f"{kind}-simulator", marks=pytest.mark.slow) for kind in ("tiered", "sglang", "tensorrt")),
    *(kind for kind, url in REAL.items() if url),
]


@pytest_asyncio.fixture(params=KINDS)
async def target(request: pytest.FixtureRequest, adapter_paths: list[str]) -> AsyncIterator[Target]:
    kind: str = request.param
    paths: list[str | None] = [*adapter_paths]
    url = ""
    if kind == "fake":
        engine: Engine = FakeEngine(max_prompt_tokens=2047)
        paths[1] = None
    elif kind == "simulator":
        url = request.getfixturevalue("running_simulator").url
        engine = VllmEngine(url)
    elif kind == "tiered-simulator":  # with an LMCache that has none of it
        url = request.getfixturevalue("running_simulator").url
        node = FakeNode()
        node.register("/models/tiny")
        engine = TieredVllmEngine(url, tier=LmcacheNode("http://node", transport=node))
    elif kind == "sglang-simulator":
        url = request.getfixturevalue("running_sglang_simulator").url
        engine = SglangEngine(url)
    elif kind == "tensorrt-simulator":
        url = request.getfixturevalue("running_tensorrt_simulator").url
        engine = TensorrtEngine(url)
    elif kind == "tensorrt":
        assert TENSORRT_URL is not None
        url = TENSORRT_URL
        engine = TensorrtEngine(url, timeout_s=120)
        paths = [os.environ.get("STOKER_TENSORRT_LORA"), os.environ.get("STOKER_TENSORRT_LORA_LARGE")]
    elif kind == "sglang":
        assert SGLANG_URL is not None
        url = SGLANG_URL
        engine = SglangEngine(url, timeout_s=120)
        paths = [os.environ.get("STOKER_SGLANG_LORA"), os.environ.get("STOKER_SGLANG_LORA_LARGE")]
    else:
        assert URL is not None
        url = URL
        engine = VllmEngine(URL, timeout_s=120, event_sources=real_event_sources())
        paths = [os.environ.get("STOKER_VLLM_LORA"), os.environ.get("STOKER_VLLM_LORA_LARGE")]
    told = await engine.capabilities()
    assert told.block_tokens is not None
    yield Target(kind, engine, told.models[0], told.block_tokens, paths[0], paths[1], url)
    await engine.close()


def real_event_sources() -> list[EventSource] | None:
    spelled = os.environ.get("STOKER_VLLM_EVENTS")
    if not spelled:
        return None
    endpoint, replay, topic = (*spelled.split(","), "", "")[:3]
    return [EventSource(0, endpoint, replay or None, topic or "kv-events")]


def new_id() -> str:
    return f"contract-{uuid.uuid4().hex}"


async def until(condition: Callable[[], bool] | Callable[[], object], what: str) -> None:
    """Wait for a condition, which may be a coroutine function."""
    deadline = asyncio.get_running_loop().time() + DEADLINE_S
    while True:
        held = condition()
        if asyncio.iscoroutine(held):
            held = await held
        if held:
            return
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not happen within {DEADLINE_S:g} s"
        await asyncio.sleep(0.05)


async def test_capabilities_are_told_once(target: Target) -> None:
    told = await target.engine.capabilities()
    assert told is await target.engine.capabilities() or told == await target.engine.capabilities()
    assert told.usage_details
    assert told.runtime_adapters
    assert told.sleep is target.tells_more
    assert told.num_blocks is not None
    assert (told.max_prompt_tokens is None) == isinstance(target.engine, TensorrtEngine)


async def test_a_repeated_prompt_finds_its_full_blocks(target: Target) -> None:
    ids = target.ids(5 * target.block + 3)
    cold = await target.engine.warm_tokens(target.model, ids, request_id=new_id())
    warm = await target.engine.warm_tokens(target.model, ids, request_id=new_id())
    assert (cold.prompt_tokens, cold.cached_tokens) == (len(ids), 0)
    assert (warm.prompt_tokens, warm.cached_tokens) == (len(ids), 5 * target.block)


async def test_the_last_token_is_always_recomputed(target: Target) -> None:
    ids = target.ids(4 * target.block)
    await target.engine.warm_tokens(target.model, ids, request_id=new_id())
    again = await target.engine.warm_tokens(target.model, ids, request_id=new_id())
    assert again.cached_tokens == 3 * target.block


async def test_a_prompt_below_one_block_is_never_a_hit(target: Target) -> None:
    ids = target.ids(target.block - 1)
    await target.engine.warm_tokens(target.model, ids, request_id=new_id())
    again = await target.engine.warm_tokens(target.model, ids, request_id=new_id())
    assert again.cached_tokens == 0


async def test_warmed_messages_are_found_by_a_longer_chat(target: Target) -> None:
    system: ChatMessage = {"role": "system", "content": target.words(6 * target.block)}
    cold = await target.engine.warm_messages(target.model, [system], request_id=new_id())
    full = cold.prompt_tokens // target.block * target.block
    assert full >= 6 * target.block
    assert (cold.cached_tokens, cold.created_tokens) == (0, full if target.tells_more else None)
    longer = [system, ChatMessage(role="user", content=target.words(3))]
    seen = await target.engine.resident(target.model, Messages(longer), request_id=new_id())
    assert seen.cached_tokens is not None
    assert seen.cached_tokens >= full


async def test_an_answer_has_a_text_and_an_end_and_finds_what_was_warmed(target: Target) -> None:
    system: ChatMessage = {"role": "system", "content": target.words(6 * target.block)}
    warmed = await target.engine.warm_messages(target.model, [system], request_id=new_id())
    chat = [system, ChatMessage(role="user", content=target.words(3))]
    short = await target.engine.generate(target.model, chat, max_tokens=1, request_id=new_id())
    assert short.prompt_tokens > warmed.prompt_tokens
    full = warmed.prompt_tokens // target.block * target.block
    assert (short.cached_tokens or 0) >= full > 0
    longer = await target.engine.generate(target.model, chat, max_tokens=12, request_id=new_id())
    assert 1 == short.answer_tokens <= longer.answer_tokens <= 12
    assert longer.text
    assert {short.finish_reason, longer.finish_reason} <= {"stop", "length"}
    with pytest.raises(RefusedCommand):
        await target.engine.generate("no-such-model", chat, max_tokens=1, request_id=new_id())


async def test_a_repeated_warm_up_creates_at_most_the_recomputed_block(target: Target) -> None:
    messages: list[ChatMessage] = [{"role": "system", "content": target.words(4 * target.block)}]
    first = await target.engine.warm_messages(target.model, messages, request_id=new_id())
    second = await target.engine.warm_messages(target.model, messages, request_id=new_id())
    if not target.tells_more:
        assert (first.created_tokens, second.created_tokens) == (None, None)
        assert (second.cached_tokens or 0) >= (second.prompt_tokens - 1) // target.block * target.block
        return
    assert first.created_tokens
    assert second.created_tokens in (0, target.block)


async def test_a_prefix_of_messages_is_a_prefix_of_tokens(target: Target) -> None:
    target.demand_rendering()
    messages: list[ChatMessage] = [
        {"role": "system", "content": "Be short. "},
        {"role": "user", "content": "  What is\n\na block?"},
        {"role": "assistant", "content": "Some tokens."},
    ]
    whole = await target.engine.tokenize(target.model, Messages(messages))
    warmed = await target.engine.warm_messages(target.model, messages, request_id=new_id())
    assert warmed.prompt_tokens == len(whole)
    for end in range(1, 3):
        part = await target.engine.tokenize(target.model, Messages(messages[:end]))
        assert whole[: len(part)] == part
        assert len(part) < len(whole)


async def test_tokens_of_messages_warm_the_same_blocks(target: Target) -> None:
    target.demand_rendering()
    messages: list[ChatMessage] = [{"role": "system", "content": target.words(4 * target.block)}]
    ids = await target.engine.tokenize(target.model, Messages(messages))
    await target.engine.warm_tokens(target.model, ids, request_id=new_id())
    seen = await target.engine.resident(target.model, Messages(messages), request_id=new_id())
    assert seen.cached_tokens == (len(ids) - 1) // target.block * target.block


async def test_text_and_tokens_are_the_same_prompt(target: Target) -> None:
    text = target.words(4 * target.block)
    ids = await target.engine.tokenize(target.model, Text(text))
    await target.engine.warm_tokens(target.model, text, request_id=new_id())
    seen = await target.engine.resident(target.model, Tokens(ids), request_id=new_id())
    assert seen.cached_tokens == (len(ids) - 1) // target.block * target.block
    assert seen.created_tokens is None


async def test_tools_are_part_of_the_prefix(target: Target) -> None:
    messages: list[ChatMessage] = [{"role": "user", "content": target.words(3 * target.block)}]
    function = {"name": target.words(1), "parameters": {"type": "object", "properties": {}}}
    tools = [{"type": "function", "function": function}]
    await target.engine.warm_messages(target.model, messages, tools=tools, request_id=new_id())
    seen = await target.engine.resident(target.model, Messages(messages, tools), request_id=new_id())
    assert seen.cached_tokens


async def test_a_salt_makes_a_separate_tree(target: Target) -> None:
    ids = target.ids(3 * target.block + 1)
    salts = [Salt(uuid.uuid4().hex), Salt(uuid.uuid4().hex)]
    await target.engine.warm_tokens(target.model, ids, salt=salts[0], request_id=new_id())
    for salt, cached in ((None, 0), (salts[1], 0), (salts[0], 3 * target.block)):
        seen = await target.engine.resident(target.model, Tokens(ids), salt=salt, request_id=new_id())
        assert seen.cached_tokens == cached


@pytest.mark.parametrize("salt", ["", "a/b", "x" * 129])
async def test_a_bad_salt_is_refused_and_not_quoted(target: Target, salt: str) -> None:
    with pytest.raises(RefusedCommand) as refused:
        await target.engine.warm_tokens(target.model, target.ids(3), salt=Salt(salt), request_id=new_id())
    assert not salt or salt not in str(refused.value)


async def test_an_unknown_model_is_refused(target: Target) -> None:
    with pytest.raises(RefusedCommand):
        await target.engine.warm_tokens("none", target.ids(3), request_id=new_id())


async def test_a_prompt_that_is_too_long_is_refused(target: Target) -> None:
    limit = (await target.engine.capabilities()).max_prompt_tokens
    if limit is None:
        if not target.name.endswith("simulator"):
            pytest.skip("this engine does not tell how long a prompt may be")
        limit = LONGEST - 1
    with pytest.raises(RefusedCommand):
        await target.engine.warm_tokens(target.model, [300] * (limit + 1), request_id=new_id())
    with pytest.raises(RefusedCommand):
        await target.engine.warm_tokens(target.model, [], request_id=new_id())


async def test_a_missed_deadline_is_transient(target: Target) -> None:
    with pytest.raises(TransientFault):
        await target.engine.warm_tokens(target.model, target.ids(64), request_id=new_id(), timeout_s=0.0)


async def test_priority_is_accepted(target: Target) -> None:
    ids = target.ids(target.block)
    for priority in (0, 999):
        await target.engine.warm_tokens(target.model, ids, request_id=new_id(), priority=priority)


async def test_concurrent_calls_all_answer(target: Target) -> None:
    prompts = [target.ids(2 * target.block) for _ in range(8)]
    calls = [target.engine.warm_tokens(target.model, ids, request_id=new_id()) for ids in prompts]
    assert {warmed.prompt_tokens for warmed in await asyncio.gather(*calls)} == {2 * target.block}


async def test_an_adapter_has_its_own_prefixes_and_goes_away(target: Target) -> None:
    target.demand_adapter_prompts()
    if target.adapter_path is None:
        pytest.skip("STOKER_VLLM_LORA is not set: no adapter to load")
    engine, name, path = target.engine, f"adapter-{uuid.uuid4().hex[:8]}", target.adapter_path
    await engine.load_adapter(name, path)
    await engine.load_adapter(name, path)
    assert (name, path) in [(adapter.name, adapter.path) for adapter in await engine.adapters()]
    with pytest.raises(RefusedCommand):
        await engine.load_adapter(name, path + "-other")
    ids = target.ids(2 * target.block + 1)
    await engine.warm_tokens(target.model, ids, adapter=name, request_id=new_id())
    base = await engine.resident(target.model, Tokens(ids), request_id=new_id())
    tuned = await engine.resident(target.model, Tokens(ids), adapter=name, request_id=new_id())
    assert (base.cached_tokens, tuned.cached_tokens) == (0, 2 * target.block)
    await engine.unload_adapter(name)
    await engine.unload_adapter(name)
    assert name not in [adapter.name for adapter in await engine.adapters()]
    with pytest.raises(RefusedCommand):
        await engine.warm_tokens(target.model, ids, adapter=name, request_id=new_id())


async def test_a_path_without_an_adapter_is_refused(target: Target) -> None:
    if isinstance(target.engine, FakeEngine):
        target.engine.adapter_paths = frozenset()
    name = f"none-{uuid.uuid4().hex[:8]}"
    with pytest.raises(RefusedCommand) as refused:
        await target.engine.load_adapter(name, "/nowhere/at/all")
    assert refused.value.reason == ("adapter_missing" if target.tells_more else "engine_refused")
    assert name not in [adapter.name for adapter in await target.engine.adapters()]


async def test_an_adapter_that_does_not_fit_is_refused_and_not_listed(target: Target) -> None:
    if target.large_path is None:
        pytest.skip("no adapter here whose rank is above the engine's limit")
    name = f"large-{uuid.uuid4().hex[:8]}"
    with pytest.raises(RefusedCommand) as refused:
        await target.engine.load_adapter(name, target.large_path)
    assert refused.value.reason == "engine_refused"
    assert name not in [adapter.name for adapter in await target.engine.adapters()]


async def test_loads_of_one_name_at_the_same_time_all_succeed(target: Target) -> None:
    if target.adapter_path is None:
        pytest.skip("STOKER_VLLM_LORA is not set: no adapter to load")
    name, path = f"adapter-{uuid.uuid4().hex[:8]}", target.adapter_path
    await asyncio.gather(*(target.engine.load_adapter(name, path) for _ in range(3)))
    assert [adapter.name for adapter in await target.engine.adapters()].count(name) == 1
    await target.engine.unload_adapter(name)


async def test_a_probe_is_one_short_request_to_a_model_or_an_adapter(target: Target) -> None:
    engine, names = target.engine, [target.model]
    if target.adapter_path is not None:
        names.append(f"adapter-{uuid.uuid4().hex[:8]}")
        await engine.load_adapter(names[1], target.adapter_path)
    before = await engine.metrics()
    for name in names:
        await engine.probe(name, request_id=new_id())

    async def counted() -> bool:
        now = await engine.metrics()
        return now.ttft_s.since(before.ttft_s).count == len(names)

    await until(counted, "counting the probes")
    assert (await engine.metrics()).prompt_tokens - before.prompt_tokens < 2 * target.block
    for gone in names[1:]:
        await engine.unload_adapter(gone)
    with pytest.raises(RefusedCommand):
        await engine.probe("none", request_id=new_id())


async def test_an_adapter_with_requests_in_flight_is_told_as_busy(target: Target) -> None:
    if target.adapter_path is None or target.name == "vllm":
        pytest.skip("needs an adapter, and an engine that counts requests while it sleeps")
    target.demand_sleep()
    engine, name = target.engine, f"adapter-{uuid.uuid4().hex[:8]}"
    await engine.load_adapter(name, target.adapter_path)
    assert name not in (await engine.metrics()).busy_adapters
    await target.sleep()
    waiting = asyncio.create_task(engine.probe(name, request_id=new_id()))
    try:

        async def busy() -> bool:
            return name in (await engine.metrics()).busy_adapters

        await until(busy, "hearing of the adapter's request")
    finally:
        await engine.wake()
        await waiting
    assert name not in (await engine.metrics()).busy_adapters
    await engine.unload_adapter(name)


async def test_waking_lets_requests_go_on_and_is_harmless_when_awake(target: Target) -> None:
    target.demand_sleep()
    await target.sleep()
    waiting = asyncio.create_task(target.engine.probe(target.model, request_id=new_id()))
    try:
        assert await target.engine.is_sleeping() is True
    finally:
        await target.engine.wake(timeout_s=60)
    await asyncio.wait_for(waiting, 60)
    assert await target.engine.is_sleeping() is False
    await target.engine.wake()
    assert await target.engine.is_sleeping() is False


async def test_a_pin_is_kept_or_refused(target: Target) -> None:
    if target.adapter_path is None:
        pytest.skip("STOKER_VLLM_LORA is not set: no adapter to load")
    engine, names = target.engine, [f"adapter-{uuid.uuid4().hex[:8]}" for _ in range(3)]
    if not (await engine.capabilities()).adapter_pins:
        with pytest.raises(RefusedCommand):
            await engine.pin_adapter(names[0])
        return
    if isinstance(engine, FakeEngine):
        engine.adapter_slots = 2
    await engine.load_adapter(names[0], target.adapter_path, pinned=True)
    await engine.pin_adapter(names[0])
    await engine.pin_adapter(names[0])
    for name in names[1:]:
        await engine.load_adapter(name, target.adapter_path)
    if isinstance(engine, FakeEngine):
        assert engine.on_gpu == (names[0], names[2])
    for refused in (names[2], "unknown"):
        with pytest.raises(RefusedCommand):
            await engine.pin_adapter(refused)
    for name in names:
        await engine.unload_adapter(name)


async def test_counters_grow_by_what_was_asked(target: Target) -> None:
    ids = target.ids(4 * target.block + 2)
    before = await target.engine.metrics()
    await target.engine.warm_tokens(target.model, ids, request_id=new_id())
    await target.engine.warm_tokens(target.model, ids, request_id=new_id())

    async def counted() -> bool:
        now = await target.engine.metrics()
        queried = now.prefix_query_tokens - before.prefix_query_tokens
        hit = now.prefix_hit_tokens - before.prefix_hit_tokens
        first_tokens = now.ttft_s.since(before.ttft_s).count
        return (queried, hit, first_tokens) == (2 * len(ids), 4 * target.block, 2)

    await until(counted, "counting two prompts")
    now = await target.engine.metrics()
    assert now.block_tokens == target.block
    assert now.blocks_total
    assert now.sleeping is (False if target.tells_more else None)


async def test_it_tells_that_it_does_not_sleep(target: Target) -> None:
    assert await target.engine.is_sleeping() is False


async def test_a_reset_forgets_prefixes(target: Target) -> None:
    target.demand_reset()
    ids = target.ids(3 * target.block)
    await target.engine.warm_tokens(target.model, ids, request_id=new_id())
    await until(target.engine.reset_prefix_cache, "a reset")
    again = await target.engine.warm_tokens(target.model, ids, request_id=new_id())
    assert again.cached_tokens == 0


async def test_events_tell_what_is_resident(target: Target) -> None:
    if not isinstance(target.engine, FakeEngine) and not (await target.engine.capabilities()).event_sources:
        pytest.skip("this engine publishes no KV events")
    view = BlockView()
    events = target.engine.kv_events()

    async def follow() -> None:
        async for event in events:
            view.apply(event)

    task = asyncio.create_task(follow())
    try:
        ids, salt = target.ids(4 * target.block + 1), Salt(uuid.uuid4().hex)
        await target.engine.warm_tokens(target.model, ids[: 2 * target.block], request_id=new_id())
        await target.engine.warm_tokens(target.model, ids, request_id=new_id())
        await target.engine.warm_tokens(target.model, ids, salt=salt, request_id=new_id())
        await until(lambda: view.resident_tokens(ids) == 4 * target.block, "hearing of stored blocks")
        await until(lambda: view.resident_tokens(ids, salt=salt.value) == 4 * target.block, "hearing of salted blocks")
        assert view.resident_tokens(ids[: 3 * target.block]) == 3 * target.block
        assert view.resident_tokens(target.ids(target.block)) == 0
        assert view.resident_tokens(ids, salt="another") == 0
        assert view.block_tokens == target.block
        await until(target.engine.reset_prefix_cache, "a reset")
        # vLLM tells a reset with the next batch of events.
        await target.engine.warm_tokens(target.model, target.ids(target.block), request_id=new_id())
        await until(lambda: view.complete and len(view) == 1, "hearing of the reset")
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await events.aclose()


async def test_a_closed_engine_answers_no_more(target: Target) -> None:
    await target.engine.close()
    with pytest.raises(TransientFault):
        await target.engine.warm_tokens(target.model, target.ids(3), request_id=new_id())


async def test_secrets_show_in_no_repr() -> None:
    secret = "salt-of-a-tenant"
    assert secret not in repr(Salt(secret))
    assert secret not in repr(Messages([{"role": "user", "content": secret}]))
    assert secret not in repr(Text(secret))
    assert "4711" not in repr(Tokens([4711]))
    assert "Gap" in repr(Gap(1, 2))
