"""Answers and values on real services: from a command in Kafka to what a gateway and an application see in Redis."""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from town import FINGERPRINT, SCOPE, Town, until

from connectors.redis.keys import cached_value_key, lease_key, semantic_cache_name
from connectors.redis.semantic_layout import filterable_fields
from schemas import Response, Value, WarmupCommand
from schemas.canonical import h128, query_sha256, response_key, value_key

pytestmark = pytest.mark.service
CACHE = "answers"
SWEPT_WITHIN_S = 5.0


class Shop(Town):
    """A town with two sources of business values."""

    def __init__(self, bootstrap: str, redis_url: str, folder: Path) -> None:
        super().__init__(bootstrap, redis_url, folder)
        self.redis = redis.Redis.from_url(redis_url)
        self.sick = False
        self.served: list[str] = []
        shop = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                key = self.path.rpartition("/")[2]
                shop.served.append(key)
                body = f"price of {key}".encode()
                self.send_response(503 if shop.sick else 400 if key.startswith("bad") else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Be quiet."""

        self.source = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.source.serve_forever, args=(0.05,), daemon=True).start()
        self.database = folder / "prices.db"
        with sqlite3.connect(self.database) as connection:
            connection.execute("CREATE TABLE prices (scope TEXT, sku TEXT, price TEXT)")
            rows = [(scope, f"sku-{n}", f"{scope} {n}") for scope in (SCOPE, "globex") for n in range(20)]
            connection.executemany("INSERT INTO prices VALUES (?, ?, ?)", rows)
        connection.close()

    def settings(self, **executor: Any) -> Path:
        path = super().settings(**executor)
        loaders = f"""
[[executor.http_loaders]]
name = "catalogue"
url = "http://127.0.0.1:{self.source.server_address[1]}/{{scope}}/{{key}}"
scopes = ["{SCOPE}"]
[[executor.sql_loaders]]
name = "prices"
dsn = "file:{self.database}?mode=ro"
query = "SELECT sku, price FROM prices WHERE scope = {{scope}} AND sku IN ({{keys}})"
scopes = ["{SCOPE}"]
"""
        path.write_text(path.read_text() + loaders)
        return path

    def close(self) -> None:
        super().close()
        self.source.shutdown()
        self.source.server_close()
        self.redis.close()

    def answer(self, response: str, lives_s: float = 600, stored: str | None = None, **fields: Any) -> WarmupCommand:
        """A command for an answer to a query of its own; `stored` is what lies where the answer's text should."""
        self.sent += 1
        query = f"question {self.sent} of {self.name}"
        action = fields.pop("action", "warm")
        return self.answered(query, response, lives_s, response if stored is None else stored, action, **fields)

    def answered(
        self, query: str, response: str, lives_s: float, stored: str, action: str = "warm", **fields: Any
    ) -> WarmupCommand:
        sha, reference = query_sha256(query), h128(response)
        self.vectors.put(SCOPE, FINGERPRINT, {sha: vector_of(query)}, 3_600_000)
        self.blobs.put(SCOPE, {sha: query.encode(), reference: stored.encode()}, 3_600_000)
        values = {"reward": 0.9, "until_ms": time.time_ns() // 1_000_000 + round(lives_s * 1000), **fields}
        target = Response(
            cache=CACHE, fingerprint=FINGERPRINT, query_sha256=sha, response_ref=reference, model="tiny", **values
        )
        self.sent += 1
        return self.command(target, response_key(CACHE, sha), pool="redis:main", action=action)

    def value(self, key: str, loader: str, ttl_ms: int = 900_000) -> WarmupCommand:
        self.sent += 1
        return self.command(Value(key=key, loader=loader, ttl_ms=ttl_ms), value_key(key), pool="redis:main")

    def query_of(self, command: WarmupCommand) -> str:
        assert isinstance(command.target, Response)
        return self.blobs.get(SCOPE, [command.target.query_sha256])[command.target.query_sha256].decode()

    def gateway(self, ttl_s: int | None = None) -> Any:
        """RedisVL's own client, as a gateway of this scope has it."""
        from redisvl.extensions.cache.llm import SemanticCache
        from redisvl.utils.vectorize import CustomVectorizer

        return SemanticCache(
            name=semantic_cache_name(SCOPE, CACHE, FINGERPRINT),
            redis_url=self.redis_url,
            vectorizer=CustomVectorizer(embed=lambda text, **_: vector_of(text).tolist()),
            filterable_fields=filterable_fields(),
            ttl=ttl_s,
        )

    def ended(self, *commands: WarmupCommand) -> dict[str, tuple[str, str]]:
        """Status and reason of each command."""
        found = self.settled(commands)
        assert all(len(outcomes) == 1 for outcomes in found.values())
        return {o[0].command_id: (o[0].status, o[0].reason.value) for o in found.values()}


def vector_of(text: str) -> Any:
    vector = np.random.default_rng(int(query_sha256(text)[:8], 16)).standard_normal(32).astype(np.float32)
    return vector / np.linalg.norm(vector)


@pytest.fixture(scope="module")
def shop(kafka_bootstrap: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    shop = Shop(kafka_bootstrap, redis_url, tmp_path_factory.mktemp("shop"))
    shop.executor()
    yield shop
    shop.close()


def last_hit(look: Callable[[], Any], until_s: float) -> tuple[float, float]:
    """Looks until nothing is found any more: when it was found last, and how long this machine stood still."""
    found_at, looked_at, stall_s = 0.0, time.time(), 0.0
    while time.time() < until_s:
        stall_s = max(stall_s, time.time() - looked_at - 0.1)
        looked_at = time.time()
        if not look():
            break
        found_at = looked_at
        time.sleep(0.05)
    return found_at, max(0.0, stall_s)


def test_an_answer_is_hit_by_redisvls_own_client_until_its_end_and_no_longer(shop: Shop) -> None:
    command = shop.answer("In your letter box.", lives_s=30)
    shop.send(command)
    assert shop.ended(command) == {command.command_id: ("applied", "done")}
    gateway, query = shop.gateway(ttl_s=3_600), shop.query_of(command)
    (hit,) = gateway.check(prompt=query)
    assert (hit["prompt"], hit["response"]) == (query, "In your letter box.")
    assert (hit["scope"], hit["source"]) == (SCOPE, "warmup")
    assert hit["metadata"]["command_id"] == command.command_id
    assert shop.redis.ttl(hit["key"]) > 3_000, "the reader has prolonged it, as RedisVL does at every hit"
    assert isinstance(command.target, Response)
    end_s = command.target.until_ms / 1000
    found_at, stall_s = last_hit(lambda: gateway.check(prompt=query), end_s + 120)
    assert found_at >= end_s - 1 - stall_s, "it was gone before its end"
    assert found_at <= end_s + SWEPT_WITHIN_S + stall_s
    assert shop.redis.exists(hit["key"]) == 0


def test_a_killed_sweeper_is_followed_in_time(shop: Shop) -> None:
    second = shop.executor()
    command = shop.answer("Soon gone.", lives_s=30)
    shop.send(command)
    assert shop.ended(command) == {command.command_id: ("applied", "done")}
    gateway, query = shop.gateway(ttl_s=3_600), shop.query_of(command)
    assert gateway.check(prompt=query)
    assert isinstance(command.target, Response)
    end_s = command.target.until_ms / 1000
    holder = shop.redis.hget(lease_key("sweep:redis:main"), "holder").decode()
    sweeping = [process for process in shop.executors if f"-{process.pid}-" in holder]
    time.sleep(max(0.0, end_s - 0.5 - time.time()))
    for process in sweeping or [second]:
        process.signal(signal.SIGKILL)
    found_at, stall_s = last_hit(lambda: gateway.check(prompt=query), end_s + 120)
    assert found_at <= end_s + SWEPT_WITHIN_S + stall_s
    assert shop.redis.hget(lease_key("sweep:redis:main"), "holder").decode() != holder or not sweeping
    if not any(shop.readyz(process) for process in shop.executors if process.pid is not None):
        shop.executor()


def test_an_invalidated_answer_is_not_hit_any_more(shop: Shop) -> None:
    command = shop.answer("In the sea.")
    shop.send(command)
    shop.ended(command)
    gateway, query = shop.gateway(), shop.query_of(command)
    gateway.store(query, "In the sea.", vector_of(query).tolist())
    assert len(gateway.check(prompt=query, num_results=5)) == 2
    gone = shop.answered(query, "In the sea.", 600, "In the sea.", "invalidate")
    shop.send(gone)
    assert shop.ended(gone) == {gone.command_id: ("applied", "done")}
    assert gateway.check(prompt=query, num_results=5) == []


def test_an_answer_that_may_not_be_served_is_not_there(shop: Shop) -> None:
    forged = shop.answer("The right answer.", stored="Another text under its hash.")
    expired = shop.answer("Too late.", lives_s=-1)
    poor = shop.answer("Poor.", reward=0.2)
    good = shop.answer("Good.")
    shop.send(forged, expired, poor, good)
    assert shop.ended(forged, expired, poor, good) == {
        forged.command_id: ("skipped", "digest_mismatch"),
        expired.command_id: ("skipped", "expired_content"),
        poor.command_id: ("skipped", "below_reward_floor"),
        good.command_id: ("applied", "done"),
    }
    gateway = shop.gateway()
    assert [bool(gateway.check(prompt=shop.query_of(c))) for c in (forged, expired, poor, good)] == [0, 0, 0, 1]


def test_values_are_in_redis_with_their_time_and_a_failing_key_keeps_none_back(shop: Shop) -> None:
    shop.served.clear()
    http = {key: shop.value(key, "catalogue") for key in ("sku-1", "bad-2", "sku-3")}
    rows = {f"sku-{n}": shop.value(f"sku-{n}", "prices", ttl_ms=60_000) for n in (7, 8, 99)}
    shop.send(*http.values(), *rows.values())
    ended = shop.ended(*http.values(), *rows.values())
    missing = {http["bad-2"].command_id, rows["sku-99"].command_id}
    assert {i: end for i, end in ended.items() if i in missing} == dict.fromkeys(missing, ("skipped", "value_missing"))
    assert {end for i, end in ended.items() if i not in missing} == {("applied", "done")}
    keys = {key: cached_value_key(SCOPE, key) for key in (*http, *rows)}
    held = {key: shop.redis.get(name) for key, name in keys.items()}
    assert held == {
        "sku-1": b"price of sku-1",
        "bad-2": None,
        "sku-3": b"price of sku-3",
        "sku-7": f"{SCOPE} 7".encode(),
        "sku-8": f"{SCOPE} 8".encode(),
        "sku-99": None,
    }
    assert 0 < shop.redis.pttl(keys["sku-7"]) <= 60_000 < shop.redis.pttl(keys["sku-1"]) <= 900_000
    assert set(shop.served) == {"sku-1", "bad-2", "sku-3"}
    pages = [shop.get(process, "/metrics").text for process in shop.executors if process.pid is not None]
    assert any('cache_warmup_key_errors_total{reason="refused",source="catalogue"} 1.0' in page for page in pages)
    assert any('cache_warmup_key_errors_total{reason="not_found",source="prices"} 1.0' in page for page in pages)


def test_a_value_ends_by_itself(shop: Shop) -> None:
    command = shop.value("sku-brief", "catalogue", ttl_ms=1_000)
    shop.send(command)
    shop.ended(command)
    until(lambda: shop.redis.get(cached_value_key(SCOPE, "sku-brief")) is None, 60)


def test_a_source_that_is_down_fails_its_commands_and_recovers(shop: Shop) -> None:
    shop.sick = True
    down = shop.value("sku-down", "catalogue")
    shop.send(down)
    assert shop.ended(down) == {down.command_id: ("failed", "loader_unavailable")}
    assert shop.redis.get(cached_value_key(SCOPE, "sku-down")) is None
    shop.sick = False
    again = shop.value("sku-down", "catalogue")
    unknown = shop.value("sku-1", "nobody")
    shop.send(again, unknown)
    assert shop.ended(again, unknown) == {
        again.command_id: ("applied", "done"),
        unknown.command_id: ("rejected", "loader_unknown"),
    }
    assert shop.served.count("sku-down") == 5, "four tries while it was down, one after"


def test_a_killed_executor_leaves_no_answer_and_no_value_half_done(shop: Shop) -> None:
    dying = shop.executor(failpoint="apply_answered")
    answers = [shop.answer(f"Answer {n}.") for n in range(16)]
    values = [shop.value(f"sku-kill-{n}", "catalogue") for n in range(16)]
    shop.send(*answers, *values)
    until(lambda: dying.pid is None, 60)
    if not any(process.pid is not None for process in shop.executors):
        shop.executor()
    ended = shop.ended(*answers, *values)
    assert set(ended.values()) == {("applied", "done")}
    gateway = shop.gateway()
    for n, command in enumerate(answers):
        hits = gateway.check(prompt=shop.query_of(command), num_results=5)
        assert [hit["response"] for hit in hits] == [f"Answer {n}."]
    assert all(shop.redis.get(cached_value_key(SCOPE, f"sku-kill-{n}")) for n in range(16))
