"""The token of the admin port: who needs it, and that nobody else is told."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from connectors.metrics import PrometheusMetrics
from executor.admin import admin
from executor.service import Executor

TOKEN = "admin-token-93bd"


class Verdicts:
    async def verdict(self, name: str) -> Any:
        return SimpleNamespace(warm=True, why=f"{name} is warm")


EXECUTOR = cast(
    Executor,
    SimpleNamespace(broken=lambda: [], unready=lambda: None, held_back=lambda: {}, cache_warm=Verdicts()),
)


async def statuses(token: str | None, header: dict[str, str]) -> dict[str, int]:
    async with (
        admin(EXECUTOR, PrometheusMetrics(), "127.0.0.1", 0, token) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=header, trust_env=False) as client,
    ):
        paths = ("/healthz", "/readyz", "/metrics", "/replicas/r0/cache-warm")
        answers = {path: await client.get(path) for path in paths}
    assert not any(TOKEN in answer.text for answer in answers.values())
    return {path: answer.status_code for path, answer in answers.items()}


@pytest.mark.parametrize("shown", [None, "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer Ünïcode"])
async def test_only_probes_of_the_executor_itself_are_answered_without_the_token(
    shown: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told = await statuses(TOKEN, {} if shown is None else {"Authorization": shown.encode("utf-8")})  # type: ignore[dict-item]
    assert told == {"/healthz": 200, "/readyz": 200, "/metrics": 401, "/replicas/r0/cache-warm": 401}
    assert f"Bearer {TOKEN}" not in caplog.text


async def test_with_the_token_or_where_none_is_set_all_is_answered() -> None:
    assert set((await statuses(TOKEN, {"Authorization": f"Bearer {TOKEN}"})).values()) == {200}
    assert set((await statuses(None, {})).values()) == {200}
