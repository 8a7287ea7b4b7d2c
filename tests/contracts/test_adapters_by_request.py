"""A prompt under an adapter that an engine does not have, in all dialects over HTTP: Stoker's requests load none."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from connectors.engines.fake import FakeEngine
from connectors.engines.sglang import SglangEngine
from connectors.engines.tensorrt import TensorrtEngine
from connectors.engines.vllm import VllmEngine
from connectors.redis import fake
from executor.apply import PrefixApplier
from executor.apply.salts import SaltStore
from executor.outcomes import Ending
from schemas import Prefix, Reason, Render, Segment, WarmupCommand
from schemas.canonical import root_hash, segment_hash
from stoker.simulator.process import simulator

NAME = "german@7"
TEXT = " ".join(f"word{number}" for number in range(100))
ENGINES = {"vllm": VllmEngine, "sglang": SglangEngine, "tensorrt_llm": TensorrtEngine}
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of adapters by name."""
    folder = tmp_path_factory.mktemp("cache")
    (folder / NAME).mkdir()
    (folder / NAME / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8}))
    return folder


@pytest.fixture(
    scope="module",
    params=["fake", "vllm with a resolver", *(pytest.param(name, marks=pytest.mark.slow) for name in ENGINES)],
)
def running(request: pytest.FixtureRequest, cache: Path) -> Iterator[tuple[str, str]]:
    """An engine's kind and address."""
    kind = request.param.split()[0]
    if kind == "fake":
        yield kind, ""
        return
    resolver = ("--lora-cache", str(cache)) if kind != request.param else ()
    with simulator("--dialect", kind, *resolver) as started:
        yield request.param, started.url


@pytest_asyncio.fixture
async def engine(running: tuple[str, str]) -> AsyncIterator[Any]:
    kind, url = running
    made = ENGINES[kind.split()[0]](url, timeout_s=TIMEOUT_S) if url else FakeEngine(resolves=True)
    yield made
    await made.unload_adapter(NAME)
    await made.close()


async def warmed(engine: Any, adapter: str | None) -> Ending:
    """How a command for a prefix of one message ends."""
    key = segment_hash(root_hash("tiny", adapter, "t", ""), "system", TEXT)
    store = fake.MemoryStore()
    fake.MemoryBlobs(store).put("acme", {key: TEXT.encode()}, 60_000)
    target = Prefix(
        model="tiny", adapter=adapter, segments=(Segment(key, 102, "system"),), render=Render(template_sha="t")
    )
    command = WarmupCommand(
        command_id="a" * 32,
        scope="acme",
        tenant="acme",
        pool="gpu",
        target=target,
        target_key=f"prefix:{key}",
        priority=1,
        lane="tick",
        issued_at_ms=0,
        not_before_ms=0,
        expires_at_ms=10**15,
        reason=Reason(trigger="test"),
        unit="u",
    )
    return await PrefixApplier(fake.MemoryAsyncBlobs(store), SaltStore({})).apply(command, engine, TIMEOUT_S)


async def test_a_prefix_under_an_adapter_waits_for_its_load_and_does_not_cause_it(engine, cache: Path) -> None:
    ending = await warmed(engine, NAME)
    assert (ending.status, ending.reason) == ("skipped", "needed_missing")
    assert ending.error == f"adapter {NAME} is not loaded there"
    assert await engine.adapters() == ()
    await engine.load_adapter(NAME, str(cache / NAME))
    assert (await warmed(engine, NAME)).status == "applied"


@pytest.mark.parametrize("running", ["fake", "vllm with a resolver"], indirect=True)
async def test_without_the_look_a_resolver_would_load_it(engine) -> None:
    """What the look is for: the plain request brings the adapter along."""
    await engine.warm_tokens("tiny", TEXT, adapter=NAME, request_id="r")
    assert [adapter.name for adapter in await engine.adapters()] == [NAME]


async def test_without_an_adapter_nothing_is_looked_up(engine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def adapters() -> tuple[()]:
        asked.append(1)
        return ()

    await engine.capabilities()
    monkeypatch.setattr(engine, "adapters", adapters)
    assert (await warmed(engine, None)).present
    assert asked == []
