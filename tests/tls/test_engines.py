"""Engines over https with an authority of one's own, and their token."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from certificates import Authority
from relay import tls_relay

from connectors.settings import SecretRef
from connectors.tls import client_context
from executor.ports import _engine
from executor.settings import EngineSettings
from schemas.errors import BrokenConfiguration, RefusedCommand, TransientFault
from stoker.stack import ports

pytestmark = pytest.mark.service

TOKEN, WRONG = "engine-token-4c1e", "wrong-token-0b6a"


class Models(BaseHTTPRequestHandler):
    """Tells a model and one adapter to whom shows the token."""

    def do_GET(self) -> None:
        known = self.headers["Authorization"] == f"Bearer {TOKEN}"
        cards = [{"id": "base", "root": "base"}, {"id": "a", "root": "/a", "parent": "base"}]
        body = {"data": cards} if known else {"error": {"type": "Unauthorized", "message": "invalid token"}}
        text = json.dumps(body).encode()
        self.send_response(200 if known else 401)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Silent."""


@pytest.fixture(scope="module")
def https(authority: Authority) -> Iterator[int]:
    with ThreadingHTTPServer((ports.LOOPBACK, 0), Models) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        with tls_relay(server.server_address[1], authority.server()) as port:
            yield port
        server.shutdown()


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_TEST_TOKEN", TOKEN)
    monkeypatch.setenv("STOKER_TEST_WRONG", WRONG)


async def adapters(url: str, cafile: Path | None, secret: str = "STOKER_TEST_TOKEN", kind: str = "vllm") -> list[str]:
    """Asked in the way that the executor asks."""
    settings = EngineSettings.model_validate(
        {"name": "r0", "url": url, "pool": "gpu", "kind": kind, "api_key": SecretRef(env=secret)}
    )
    tls = None if cafile is None else client_context("executor.engine_", cafile=cafile)
    engine = _engine(settings, 10_000, tls=tls)
    assert TOKEN not in repr(engine) + repr(settings) + settings.model_dump_json()
    try:
        return [adapter.name for adapter in await engine.adapters()]
    finally:
        await engine.close()


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_an_engine_is_asked_with_its_token_under_an_authority_of_one_s_own(
    https: int, authority: Authority, kind: str, everything_told: Callable[..., str]
) -> None:
    assert await adapters(f"https://{ports.LOOPBACK}:{https}", authority.certificate, kind=kind) == ["a"]
    assert TOKEN not in everything_told()


async def test_an_engine_that_is_not_trusted_is_not_sent_the_token(
    https: int, stranger: Authority, authority: Authority, everything_told: Callable[..., str]
) -> None:
    for url, cafile in (
        (f"https://{ports.LOOPBACK}:{https}", stranger.certificate),
        (f"https://{ports.LOOPBACK}:{https}", None),
        (f"https://localhost:{https}", authority.certificate),
    ):
        with pytest.raises(TransientFault, match=r"executor\.engine_cafile must hold") as refused:
            await adapters(url, cafile)
        assert TOKEN not in everything_told(refused.value)


async def test_a_token_that_is_refused_is_not_told(
    https: int, authority: Authority, everything_told: Callable[..., str]
) -> None:
    with pytest.raises(RefusedCommand, match="answered 401: Unauthorized") as refused:
        await adapters(f"https://{ports.LOOPBACK}:{https}", authority.certificate, "STOKER_TEST_WRONG")
    assert WRONG not in everything_told(refused.value)


def test_authorities_that_cannot_be_read_are_named() -> None:
    with pytest.raises(BrokenConfiguration, match=r"engine_cafile: nowhere\.pem cannot be used .No such file"):
        client_context("executor.engine_", cafile=Path("nowhere.pem"))
