"""The trial of salts against simulated engines in their own dialects, over HTTP: kept apart, dropped, not told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from connectors.engines.sglang import SglangEngine
from connectors.engines.tensorrt import TensorrtEngine
from connectors.engines.vllm import VllmEngine
from connectors.settings import SecretRef
from executor.apply.salts import SaltStore
from executor.outcomes import Ending
from executor.salt_proof import SaltProofs, fresh_ids
from schemas import Prefix, Reason, Render, Segment, WarmupCommand
from stoker.simulator.process import RunningSimulator, simulator

FLAGS = ("--block-tokens", "16", "--max-model-len", "2048")
TIMEOUT_S = 60.0


class DroppingVllm(VllmEngine):
    """A way to the engine on which the salt is lost."""

    async def resident(self, *args: Any, **fields: Any) -> Any:
        return await super().resident(*args, **{**fields, "salt": None})


class DroppingSglang(SglangEngine):
    """The same."""

    async def resident(self, *args: Any, **fields: Any) -> Any:
        return await super().resident(*args, **{**fields, "salt": None})


class DroppingTensorrt(TensorrtEngine):
    """The same."""

    async def resident(self, *args: Any, **fields: Any) -> Any:
        return await super().resident(*args, **{**fields, "salt": None})


ENGINES = {
    "vllm": (VllmEngine, DroppingVllm),
    "sglang": (SglangEngine, DroppingSglang),
    "tensorrt_llm": (TensorrtEngine, DroppingTensorrt),
}


@pytest.fixture(
    scope="module", params=["vllm", *(pytest.param(name, marks=pytest.mark.slow) for name in ENGINES if name != "vllm")]
)
def dialect(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def running(dialect: str) -> Iterator[RunningSimulator]:
    with simulator(*FLAGS, "--dialect", dialect) as running:
        yield running


async def refusal(engine: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Ending | None, list[str]]:
    """What comes of a salted command at an engine that nobody knows yet."""
    monkeypatch.setenv("ACME_SALT", "pepper")
    salts = SaltStore({"acme": {"main": SecretRef(env="ACME_SALT")}})
    proofs = SaltProofs(salts, {"r0": engine}, lambda: ["r0"], lambda: True, time.monotonic, fresh_ids, TIMEOUT_S)
    render = Render(template_sha="t", salt_ref="main")
    command = WarmupCommand(
        command_id="a" * 32,
        scope="acme",
        tenant="acme",
        pool="gpu",
        target=Prefix(model="tiny", segments=(Segment("b" * 32, 64, "system"),), render=render),
        target_key="prefix:b",
        priority=1,
        lane="tick",
        issued_at_ms=0,
        not_before_ms=0,
        expires_at_ms=10**15,
        reason=Reason(trigger="test"),
        unit="u",
    )
    try:
        return await proofs.refusal(command, "r0"), proofs.failing
    finally:
        await engine.close()


async def test_an_engine_that_keeps_salts_apart_passes_each_time(dialect, running, monkeypatch) -> None:
    for _ in range(2):
        engine = ENGINES[dialect][0](running.url, timeout_s=TIMEOUT_S)
        assert await refusal(engine, monkeypatch) == (None, [])


async def test_an_engine_to_which_no_salt_comes_is_refused(dialect, running, monkeypatch) -> None:
    ending, failing = await refusal(ENGINES[dialect][1](running.url, timeout_s=TIMEOUT_S), monkeypatch)
    assert ending is not None
    assert (ending.status, ending.reason) == ("rejected", "salt_mismatch")
    assert ending.error == "crosses: 32 tokens that were cached under one salt were found under another"
    assert failing == ["r0: salts: 32 tokens that were cached under one salt were found under another"]


@pytest.mark.parametrize("quiet", ["vllm", "sglang"])
async def test_an_engine_that_does_not_tell_what_it_finds_is_believed(quiet, monkeypatch) -> None:
    with simulator(*FLAGS, "--dialect", quiet, "--no-prompt-tokens-details") as running:
        assert await refusal(ENGINES[quiet][0](running.url, timeout_s=TIMEOUT_S), monkeypatch) == (None, [])
