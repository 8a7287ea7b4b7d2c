"""One suite for loaders of values: the fake, an HTTP service in both its forms, a database."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import pytest_asyncio

from connectors.redis.compression import MAX_BLOB_BYTES
from connectors.values import HttpLoader, HttpLoaderSettings, Loader, SqlLoader, SqlLoaderSettings
from connectors.values.fake import FakeLoader
from schemas.errors import RefusedCommand, TransientFault

SCOPES = ("acme", "gl/ob ex&ü")
STOCK: dict[tuple[str, str], Any] = {
    ("acme", "sku:1"): "12.50 €",
    ("acme", "sku:2/a b?c={d}'\""): "quoted",
    ("acme", "huge"): "x" * (MAX_BLOB_BYTES + 1),
    (SCOPES[1], "sku:1"): "99",
}


class Service:
    """An HTTP service over STOCK that fails as it is told."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.bad_keys: dict[str, int] = {}
        self.body: bytes | None = None
        self.requests: list[tuple[str, str | None]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                _, scope, key = [unquote(part) for part in self.path.split("/")]
                service.requests.append((key, self.headers.get("Authorization")))
                value = STOCK.get((scope, key))
                status = service.status or service.bad_keys.get(key) or (404 if value is None else 200)
                self.answer(status, (value or "").encode())

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.requests.append((",".join(asked["keys"]), self.headers.get("Authorization")))
                values = {key: STOCK.get((asked["scope"], key)) for key in asked["keys"]}
                self.answer(service.status or 200, json.dumps({"values": values}).encode())

            def answer(self, status: int, body: bytes) -> None:
                body = body if service.body is None else service.body
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Be quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def service():
    service = Service()
    yield service
    service.stop()


@dataclass
class Source:
    loader: Loader
    take_down: Callable[[], None]
    refuse: Callable[[], None]


def http(service: Service, path: str, **fields: Any) -> Source:
    values = {"name": "stock", "scopes": ("*",), "url": service.url + path, **fields}
    loader = HttpLoader(HttpLoaderSettings(**values), {"STOCK_TOKEN": "Bearer t0ken"})
    return Source(loader, service.stop, lambda: setattr(service, "status", 403))


def sql(path: Path, **fields: Any) -> Source:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE stock (scope TEXT, sku TEXT, price TEXT)")
        connection.executemany("INSERT INTO stock VALUES (?, ?, ?)", [(*place, v) for place, v in STOCK.items()])
    connection.close()
    query = "SELECT sku, price FROM stock WHERE scope = {scope} AND sku IN ({keys})"
    values = {"name": "stock", "scopes": ("*",), "dsn": f"file:{path}?mode=ro", "query": query, **fields}

    def refuse() -> None:
        with sqlite3.connect(path) as connection:
            connection.execute("DROP TABLE stock")
        connection.close()

    return Source(SqlLoader(SqlLoaderSettings(**values)), path.unlink, refuse)


@pytest_asyncio.fixture(params=["fake", "post", "get", "sql"])
async def source(request: pytest.FixtureRequest, service: Service, tmp_path: Path) -> AsyncIterator[Source]:
    if request.param == "fake":
        fake = FakeLoader(dict(STOCK))
        source = Source(fake, lambda: setattr(fake, "offline", True), lambda: setattr(fake, "refuses", True))
    elif request.param == "sql":
        source = sql(tmp_path / "stock.db")
    else:
        source = http(service, "/{scope}/{key}" if request.param == "get" else "/values")
    yield source
    await source.loader.close()


async def test_keys_give_their_values_and_a_failing_one_keeps_none_back(source: Source) -> None:
    strange = "sku:2/a b?c={d}'\""
    loaded = await source.loader.load("acme", ["sku:1", strange, "none", "huge"])
    assert loaded.values == {"sku:1": "12.50 €".encode(), strange: b"quoted"}
    assert loaded.faults == {"none": "not_found", "huge": "too_large"}


async def test_each_scope_has_its_own_values(source: Source) -> None:
    assert (await source.loader.load(SCOPES[1], ["sku:1"])).values == {"sku:1": b"99"}
    assert (await source.loader.load("another", ["sku:1"])).faults == {"sku:1": "not_found"}


async def test_a_source_that_is_down_is_a_fault_that_may_pass(source: Source) -> None:
    source.take_down()
    with pytest.raises(TransientFault):
        await source.loader.load("acme", ["sku:1", "sku:2"])


async def test_a_source_that_says_no_is_not_asked_for_patience(source: Source) -> None:
    source.refuse()
    # SQLite names a missing table as it names a file that is locked.
    kind = TransientFault if isinstance(source.loader, SqlLoader) else RefusedCommand
    with pytest.raises(kind) as fault:
        await source.loader.load("acme", ["sku:1"])
    if isinstance(fault.value, RefusedCommand):
        assert fault.value.reason == "loader_failed"


async def test_keys_travel_together_and_with_a_login(service: Service) -> None:
    source = http(service, "/values", authorization="env:STOCK_TOKEN")
    await source.loader.load("acme", ["sku:1", "none"])
    await source.loader.close()
    assert service.requests == [("sku:1,none", "Bearer t0ken")]


async def test_a_key_that_is_not_answered_fails_alone(service: Service) -> None:
    source = http(service, "/{scope}/{key}")
    service.bad_keys = {"a": 503, "b": 400}
    loaded = await source.loader.load("acme", ["a", "b", "sku:1"])
    assert loaded.values.keys() == {"sku:1"}
    assert loaded.faults == {"a": "unanswered", "b": "refused"}
    with pytest.raises(TransientFault):
        await source.loader.load("acme", ["a"])
    await source.loader.close()


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_service_in_trouble_may_recover(service: Service, status: int) -> None:
    source = http(service, "/values")
    service.status = status
    with pytest.raises(TransientFault):
        await source.loader.load("acme", ["sku:1"])
    service.status = None
    assert (await source.loader.load("acme", ["sku:1"])).values
    await source.loader.close()


@pytest.mark.parametrize("body", [b"[]", b'{"values": []}', b"no json", b""])
async def test_an_answer_in_another_form_is_refused(service: Service, body: bytes) -> None:
    source = http(service, "/values")
    service.body = body
    with pytest.raises(RefusedCommand) as refusal:
        await source.loader.load("acme", ["sku:1"])
    assert refusal.value.reason == "loader_failed"
    await source.loader.close()


async def test_a_query_that_hangs_is_given_up(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000) "
    query = endless + "SELECT 'sku:1', count(*) FROM n WHERE i NOT IN ({keys})"
    slow = sql(tmp_path / "slow.db", query=query, timeout_ms=50)
    with pytest.raises(TransientFault, match="50 ms"):
        await slow.loader.load("acme", ["sku:1"])


async def test_numbers_and_nothing(tmp_path: Path) -> None:
    query = "SELECT 'n', 12.5 UNION SELECT 'null', NULL UNION SELECT 'b', x'00ff' UNION SELECT {keys}, 'x'"
    source = sql(tmp_path / "kinds.db", query=query.replace("{keys}", "substr({keys}, 9)"))
    loaded = await source.loader.load("acme", ["n"])
    assert (loaded.values, loaded.faults) == ({"n": b"12.5"}, {})
