"""An executor whose vLLM has an LMCache below it: the engine is the simulator, the node answers as a real one did."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import pytest_asyncio

from connectors.engines import ChatMessage, Messages
from connectors.engines.vllm import VllmEngine
from connectors.engines.vllm_tiered import TieredVllmEngine
from connectors.metrics import PrometheusMetrics
from connectors.settings import SecretRef
from connectors.tiers import LmcacheNode, LmcacheSettings
from connectors.tiers.fake import FakeNode
from executor.ports import _engine
from executor.settings import EngineSettings
from schemas import Prefix, RefusedCommand, Render
from stoker.simulator.process import RunningSimulator, simulator

TEXT = " ".join(f"word{number}" for number in range(400))
MODEL = "tiny"
ROOT = "/models/tiny"
"""What vLLM was started with, and LMCache's name for it."""


@pytest.fixture(scope="module")
def running() -> Iterator[RunningSimulator]:
    with simulator() as started:
        yield started


@pytest.fixture
def node() -> FakeNode:
    fake = FakeNode()
    fake.register(ROOT)
    return fake


@pytest.fixture
def metrics() -> PrometheusMetrics:
    return PrometheusMetrics()


@pytest_asyncio.fixture
async def engine(world, running, node: FakeNode, metrics: PrometheusMetrics) -> AsyncIterator[TieredVllmEngine]:
    """The world's only engine."""
    tier = LmcacheNode("http://node", transport=node)
    made = TieredVllmEngine(running.url, tier=tier, replica="r0", metrics=metrics)
    world.engines = {"r0": made}
    yield made
    await world.stop()
    await made.close()


def fetches(metrics: PrometheusMetrics, result: str) -> float:
    name = f'stoker_executor_tier_fetches_total{{replica="r0",result="{result}"}}'
    lines = [line for line in metrics.exposition().decode().splitlines() if line.startswith(name)]
    return float(lines[0].rpartition(" ")[2]) if lines else 0.0


async def rendered(engine: VllmEngine, text: str) -> tuple[int, ...]:
    return await engine.tokenize(MODEL, Messages([{"role": "system", "content": text}]))


async def asked(engine: VllmEngine) -> int:
    """Prompt tokens that vLLM has looked at."""
    return (await engine.metrics()).prefix_query_tokens


async def test_what_the_tier_has_whole_never_reaches_the_engine(world, engine, node, metrics, request) -> None:
    text = f"{request.node.name} {TEXT}"
    ids = await rendered(engine, text)
    node.store(ROOT, ids)
    await world.start(readiness_probe=False)
    await engine.capabilities()
    before = await asked(engine)
    sent = world.warm(world.prefix(text))
    world.send(sent)
    outcome = await world.outcome(sent)
    held = len(ids) // node.chunk_tokens * node.chunk_tokens
    assert held > 0
    assert (outcome.status, outcome.reason) == ("resident", "already_resident")
    assert (outcome.tokens_already_resident, outcome.tokens_warmed) == (held, 0)
    assert await asked(engine) == before
    assert len(node.host) == held // node.chunk_tokens
    assert fetches(metrics, "whole") == 1


@pytest.mark.usefixtures("engine")
async def test_what_the_tier_lacks_is_warmed_by_the_engine(world, metrics, request) -> None:
    await world.start()
    sent = world.warm(world.prefix(f"{request.node.name} {TEXT}"))
    world.send(sent)
    outcome = await world.outcome(sent)
    assert (outcome.status, outcome.reason) == ("applied", "done")
    assert fetches(metrics, "missing") == 1


@pytest.mark.usefixtures("engine")
async def test_a_tier_that_fails_costs_no_warm_up(world, node, metrics, request) -> None:
    node.fault = httpx.Response(500)
    await world.start()
    sent = world.warm(world.prefix(f"{request.node.name} {TEXT}"))
    world.send(sent)
    outcome = await world.outcome(sent)
    assert (outcome.status, outcome.reason) == ("applied", "done")
    assert fetches(metrics, "unanswered") == 1


async def test_a_tier_that_hangs_leaves_the_engine_half_the_time(engine, node) -> None:
    node.looks_pending = 1_000_000
    ids = await rendered(engine, f"hangs {TEXT}")
    node.store(ROOT, ids)
    warmed = await engine.warm_tokens(MODEL, list(ids), request_id="hangs", timeout_s=4.0)
    assert warmed.cached_tokens == 0


async def test_another_scopes_salt_finds_nothing_in_the_tier(world, engine, node, request, monkeypatch) -> None:
    monkeypatch.setenv("ACME_SALT", "salt-of-acme")
    text = f"{request.node.name} {TEXT}"
    ids = await rendered(engine, text)
    node.store(ROOT, ids, "salt-of-acme")
    await world.start(salts={"acme": {"main": SecretRef(env="ACME_SALT")}})
    plain = world.prefix(text)
    salted = Prefix(model="tiny", segments=plain.segments, render=Render(template_sha="t", salt_ref="main"))
    endings = []
    for target in (salted, plain):
        sent = world.warm(target)
        world.send(sent)
        endings.append((await world.outcome(sent)).status)
    assert endings == ["resident", "applied"]


async def test_no_prompt_is_sent_with_an_adapter(engine, node, tmp_path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 8}')
    await engine.load_adapter("poet@1", str(tmp_path))
    ids = list(await rendered(engine, f"adapter {TEXT}"))
    node.store(ROOT, ids)
    before = await asked(engine)
    chat: list[ChatMessage] = [{"role": "system", "content": TEXT}]
    calls = [
        engine.warm_tokens(MODEL, ids, adapter="poet@1", request_id="a"),
        engine.warm_messages(MODEL, chat, adapter="poet@1", request_id="b"),
        engine.resident(MODEL, Messages(chat), adapter="poet@1", request_id="c"),
        engine.generate(MODEL, chat, adapter="poet@1", max_tokens=1, request_id="d"),
    ]
    for call in calls:
        with pytest.raises(RefusedCommand, match="adapter poet@1: LMCache"):
            await call
    assert await asked(engine) == before
    assert not node.requests


async def test_a_look_is_answered_by_the_engine_alone(engine, node) -> None:
    prompt = Messages([{"role": "system", "content": f"look {TEXT}"}])
    node.store(ROOT, await engine.tokenize(MODEL, prompt))
    assert (await engine.resident(MODEL, prompt, request_id="look")).cached_tokens == 0
    assert not node.requests


async def test_the_tier_knows_the_model_by_the_name_in_the_settings(running, node) -> None:
    node.register("renamed")
    tier = LmcacheNode("http://node", transport=node)
    engine = TieredVllmEngine(running.url, tier=tier, tier_model="renamed")
    ids = await rendered(engine, f"name {TEXT}")
    node.store("renamed", ids)
    warmed = await engine.warm_tokens(MODEL, list(ids), request_id="name")
    assert (warmed.cached_tokens, warmed.created_tokens) == (len(node.host) * node.chunk_tokens, 0)
    assert node.host
    await engine.close()


async def test_the_settings_put_the_tier_below_a_vllm_only() -> None:
    below = LmcacheSettings(url="http://node:8080", world_size=2)
    made = _engine(EngineSettings(name="r0", url="http://replica", pool="gpu", lmcache=below), 1_000)
    assert isinstance(made, TieredVllmEngine)
    await made.close()
    plain = _engine(EngineSettings(name="r0", url="http://replica", pool="gpu"), 1_000)
    assert type(plain) is VllmEngine
    with pytest.raises(ValueError, match="only for kind 'vllm'"):
        EngineSettings(name="r0", url="http://replica", pool="gpu", kind="sglang", lmcache=below)
