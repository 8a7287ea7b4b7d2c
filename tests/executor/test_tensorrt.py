"""An executor whose engines are TensorRT-LLM: broker and Redis in memory, the engine over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from connectors.engines.tensorrt import TensorrtEngine
from connectors.engines.vllm import VllmEngine
from connectors.settings import SecretRef
from executor.ports import _engine
from executor.settings import EngineSettings
from schemas import Adapter, Prefix, Render, ReplicaSample, decode, topics
from schemas.canonical import adapter_key
from stoker.simulator.process import RunningSimulator, simulator

TEXT = " ".join(f"word{number}" for number in range(200))


@pytest.fixture(scope="module")
def running() -> Iterator[RunningSimulator]:
    with simulator("--dialect", "tensorrt_llm") as started:
        yield started


@pytest_asyncio.fixture
async def tensorrt(world, running: RunningSimulator) -> AsyncIterator[TensorrtEngine]:
    """The world's only engine."""
    engine = TensorrtEngine(running.url)
    world.engines = {"r0": engine}
    yield engine
    await world.stop()
    await engine.close()


def unique(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name} {TEXT}"


@pytest.mark.usefixtures("tensorrt")
async def test_a_prefix_is_warmed_once_and_told_resident_without_any_event(world, request) -> None:
    await world.start()
    target = world.prefix(unique(request))
    endings = []
    for _ in range(2):
        sent = world.warm(target)
        world.send(sent)
        endings.append(await world.outcome(sent))
    assert [(one.status, one.reason) for one in endings] == [("applied", "done"), ("resident", "already_resident")]
    assert endings[0].tokens_warmed == endings[1].tokens_already_resident > 0
    told = (await world.until(lambda: world.residency(sent.target_key)))[0]
    assert (told.resident_tokens, told.full_tokens, told.source) == (endings[0].tokens_warmed, None, "applied")


@pytest.mark.usefixtures("tensorrt")
async def test_a_salted_prefix_is_another_tenants_miss(world, request, monkeypatch) -> None:
    monkeypatch.setenv("ACME_SALT", "salt-of-acme")
    await world.start(salts={"acme": {"main": SecretRef(env="ACME_SALT")}})
    plain = world.prefix(unique(request))
    salted = Prefix(model="tiny", segments=plain.segments, render=Render(template_sha="t", salt_ref="main"))
    endings = []
    for target in (salted, salted, plain):
        sent = world.warm(target)
        world.send(sent)
        endings.append((await world.outcome(sent)).status)
    assert endings == ["applied", "resident", "applied"]


class ServingGptOss(TensorrtEngine):
    """As an engine whose chat route takes a salt and drops it."""

    async def _accepted(self, *args: Any) -> dict[str, Any]:
        fields = await super()._accepted(*args)
        return {name: value for name, value in fields.items() if name != "cache_salt"}


async def test_a_model_whose_route_drops_salts_gets_nothing_salted(world, running, request, monkeypatch) -> None:
    monkeypatch.setenv("ACME_SALT", "salt-of-acme")
    engine = ServingGptOss(running.url)
    world.engines = {"r0": engine}
    await world.start(salts={"acme": {"main": SecretRef(env="ACME_SALT")}})
    plain = world.prefix(unique(request))
    salted = Prefix(model="tiny", segments=plain.segments, render=Render(template_sha="t", salt_ref="main"))
    endings = []
    for target in (salted, plain):
        sent = world.warm(target)
        world.send(sent)
        outcome = await world.outcome(sent)
        endings.append((outcome.status, outcome.reason))
    assert endings == [("rejected", "salt_mismatch"), ("applied", "done")]
    await world.stop()
    await engine.close()


async def test_an_adapter_comes_with_its_requests_and_is_never_pinned(world, tensorrt, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8}))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"weights")
    await world.start()
    target = Adapter(name="german", version="7", source=str(tmp_path))
    endings = []
    for action in ("pin", "load", "load", "unload", "unload"):
        sent = world.command(target, adapter_key("german", "7"), pool="gpu", action=action)
        world.send(sent)
        outcome = await world.outcome(sent)
        endings.append((outcome.status, outcome.reason))
    assert endings == [
        ("rejected", "unsupported"),
        ("applied", "done"),
        ("resident", "already_resident"),
        ("applied", "done"),
        ("skipped", "already_absent"),
    ]
    assert await tensorrt.adapters() == ()


@pytest.mark.usefixtures("tensorrt")
async def test_its_samples_say_ready(world) -> None:
    await world.start()

    def ready() -> bool:
        samples = [decode(value, ReplicaSample) for value in world.records(topics.TELEMETRY)]
        return any(sample.state == "ready" and sample.block_tokens == 16 for sample in samples)

    await world.until(ready)


async def test_an_engine_of_another_kind_is_refused_by_name_and_never_ready(world, running, caplog) -> None:
    engine = VllmEngine(running.url)
    world.engines = {"r0": engine}
    await world.start()
    sent = world.warm(world.prefix(TEXT))
    world.send(sent)
    outcome = await world.outcome(sent)
    assert (outcome.status, outcome.reason) == ("failed", "engine_refused")
    assert "answers as tensorrt_llm, and its settings say vllm: set kind = 'tensorrt_llm'" in outcome.error
    await world.until(lambda: "r0 cannot be watched" in caplog.text)
    samples = [decode(value, ReplicaSample) for value in world.records(topics.TELEMETRY)]
    assert {sample.state for sample in samples} <= {"starting", "lost"}
    await world.stop()
    await engine.close()


def test_the_settings_say_which_engine_it_is() -> None:
    settings = EngineSettings(name="r0", url="http://replica", pool="gpu", kind="tensorrt_llm")
    assert isinstance(_engine(settings, 1_000), TensorrtEngine)
