"""A real Redis behind TLS, with a password and a user who may do what docs/deployment.md says, and nothing else."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from certificates import Authority
from relay import tls_relay

from connectors.redis import (
    EmbeddingEntry,
    RedisAsyncBlobs,
    RedisAsyncVectors,
    RedisBlobs,
    RedisBrakes,
    RedisEmbeddingCache,
    RedisLeases,
    RedisLedger,
    RedisSemanticCache,
    RedisValues,
    RedisVectors,
    Started,
    async_client,
    sync_client,
)
from connectors.redis.semantic import Answer, CacheName
from connectors.settings import RedisSettings, SecretRef
from executor.ports import wall_clock_ms
from schemas.errors import BrokenConfiguration
from stoker.stack import ports
from stoker.stack.paths import PROJECT, StateFolder
from stoker.stack.redis import Redis, RedisConfig

pytestmark = pytest.mark.service

MINUTE_MS = 60_000
PASSWORD, WRONG = "redis-pass-52af", "wrong-pass-88d0"
SETTINGS = {"STOKER_TEST_PASSWORD": PASSWORD, "STOKER_TEST_WRONG": WRONG}
VECTOR = np.array([1, 0, 0, 0], dtype=np.float32)


def documented_user() -> list[str]:
    """The command of docs/deployment.md that makes the user, with this test's password."""
    lines = (PROJECT / "docs" / "deployment.md").read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("    ACL SETUSER stoker "))
    words = " ".join(lines[first : lines.index("", first)]).replace("PASSWORD", PASSWORD)
    return words.split()


@dataclass(frozen=True)
class Server:
    """Its ports: `plain` for the set-up, `tls`, and `certificate` for clients that show one."""

    plain: int
    tls: int
    certificate: int
    authority: Authority

    def settings(self, **more: Any) -> RedisSettings:
        given: dict[str, Any] = {
            "url": f"rediss://{ports.LOOPBACK}:{self.tls}/0",
            "username": "stoker",
            "password": SecretRef(env="STOKER_TEST_PASSWORD"),
            "tls_cafile": self.authority.certificate,
        }
        return RedisSettings(**(given | more))


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def server(
    started: Callable[[Callable[[], Any]], Any], stack_state: StateFolder, authority: Authority
) -> Iterator[Server]:
    service = Redis(RedisConfig(ports.free_port()), stack_state, name="redis-tls")
    started(lambda: service.start(300.0))
    plain, pair = service.config.port, authority.server()
    with redis.Redis(port=plain) as client:
        client.execute_command(*documented_user())
        client.execute_command("ACL", "SETUSER", "reader", "on", f">{PASSWORD}", "~stoker:*", "-@all", "+mget")
        client.execute_command("ACL", "SETUSER", "default", "resetpass", f">{PASSWORD}")
    with tls_relay(plain, pair) as tls, tls_relay(plain, pair, clients=authority) as certificate:
        yield Server(plain, tls, certificate, authority)
    service.stop()


def names() -> tuple[str, str]:
    """A scope and a replica of this test alone."""
    return f"tls-{uuid.uuid4().hex[:8]}", f"r-{uuid.uuid4().hex[:8]}"


def test_jobs_store_texts_and_vectors(server: Server) -> None:
    scope, _ = names()
    client = sync_client(server.settings())
    RedisBlobs(client).put(scope, {"h": b"text"}, MINUTE_MS)
    assert RedisBlobs(client).get(scope, ["h", "absent"]) == {"h": b"text"}
    RedisVectors(client).put(scope, "f", {"q": VECTOR}, MINUTE_MS)
    assert RedisVectors(client).get(scope, "f", ["q"])["q"].tolist() == VECTOR.tolist()
    client.close()


async def test_the_executor_does_all_that_it_does_with_the_rights_of_the_documentation(server: Server) -> None:
    scope, replica = names()
    holder, command, until_ms = "me", uuid.uuid4().hex, wall_clock_ms() + MINUTE_MS
    client = async_client(server.settings())
    with_blobs = sync_client(server.settings())
    RedisBlobs(with_blobs).put(scope, {"h": b"text"}, MINUTE_MS)
    with_blobs.close()

    assert await RedisAsyncBlobs(client).get(scope, ["h"]) == {"h": b"text"}
    assert await RedisAsyncBlobs(client).renew(scope, ["h"], 2 * MINUTE_MS) == {"h"}
    assert await RedisAsyncVectors(client).get(scope, "f", ["absent"]) == {}

    leases = RedisLeases(client)
    lease = await leases.acquire(replica, holder)
    assert lease is not None
    assert await leases.renew(lease)
    assert await leases.holder(replica) == holder
    assert await leases.release(lease)

    ledger = RedisLedger(client)
    assert await ledger.begin(command, replica, holder) == Started()
    assert await ledger.finish(command, replica, holder, "applied") == "applied"
    assert await ledger.restore([(command, "other", "resident")]) == 1
    assert await ledger.read(command, "other") == "resident"

    brakes, values = RedisBrakes(client), RedisValues(client)
    await brakes.tell({replica: b"brake"}, MINUTE_MS)
    assert await brakes.told([replica]) == {replica: b"brake"}
    await values.put(scope, {"k": b"v"}, MINUTE_MS)
    assert await values.get(scope, ["k"]) == {"k": b"v"}
    assert await values.remaining_ms(scope, "k") is not None

    embeddings = RedisEmbeddingCache(client, model_name="m", now_ms=wall_clock_ms)
    assert await embeddings.put(scope, "f", [EmbeddingEntry("q", VECTOR)], MINUTE_MS) == ["applied"]
    assert (await embeddings.metadata(scope, "f", "q") or {})["source"] == "warmup"
    assert await embeddings.remove(scope, "f", ["q"]) == 1

    answers, name = RedisSemanticCache(client, now_ms=wall_clock_ms), CacheName(scope, "main", "f")
    answer = Answer("q", "a", VECTOR, until_ms, 1, "m")
    assert await answers.put(name, answer) == "applied"
    again = RedisSemanticCache(client, now_ms=wall_clock_ms)  # finds the index and asks for its dimension
    assert await again.put(name, answer) == "resident"
    assert [held.response for held in await again.nearest(name, VECTOR, 0.1)] == ["a"]
    assert await again.sweep(until_ms + 1) == 1
    assert await again.put(name, answer) == "applied"
    assert await again.revoke(name, answer.query_sha256, 2) == 1
    await client.aclose()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("authority", "certificate is refused .*redis.tls_cafile"),
        ("host", "certificate is refused .*redis.url"),
        ("password", r"\[redis\] section: login"),
        ("no password", r"\[redis\] section: login"),
        ("no certificate", "refuses our certificate .*redis.tls_certfile"),
        ("certificate of a stranger", "refuses our certificate .*redis.tls_certfile"),
        ("encrypted key", "redis.tls_keyfile or the key's password: .* cannot be used"),
        ("no such file", "redis.tls_cafile: nowhere.pem cannot be used .No such file"),
    ],
)
async def test_who_is_turned_away_is_told_why_and_what_to_do(
    server: Server, stranger: Authority, wrong: str, told: str, everything_told: Callable[..., str]
) -> None:
    settings = _wrong(server, stranger, wrong)
    with pytest.raises(BrokenConfiguration, match=told) as refused:
        RedisBlobs(sync_client(settings)).get("s", ["h"])
    with pytest.raises(BrokenConfiguration, match=told) as refused_too:
        await RedisAsyncBlobs(async_client(settings)).get("s", ["h"])
    everything = everything_told(refused.value, refused_too.value)
    assert not any(secret in everything for secret in SETTINGS.values())


def _certificate(server: Server, authority: Authority | None, encrypted: bool = False) -> RedisSettings:
    url = f"rediss://{ports.LOOPBACK}:{server.certificate}/0"
    if authority is None:
        return server.settings(url=url)
    pair = authority.client("stoker-client")
    key = pair.key if encrypted else pair.open_key
    return server.settings(url=url, tls_certfile=pair.certificate, tls_keyfile=key)


def _wrong(server: Server, stranger: Authority, what: str) -> RedisSettings:
    made: dict[str, Callable[[], RedisSettings]] = {
        "authority": lambda: server.settings(tls_cafile=stranger.certificate),
        "host": lambda: server.settings(url=f"rediss://localhost:{server.tls}/0"),
        "password": lambda: server.settings(password=SecretRef(env="STOKER_TEST_WRONG")),
        "no password": lambda: server.settings(username=None, password=None),
        "no certificate": lambda: _certificate(server, None),
        "certificate of a stranger": lambda: _certificate(server, stranger),
        "encrypted key": lambda: _certificate(server, server.authority, encrypted=True),
        "no such file": lambda: server.settings(tls_cafile=Path("nowhere.pem")),
    }
    return made[what]()


async def test_a_client_is_let_in_by_its_certificate(server: Server) -> None:
    settings = _certificate(server, server.authority)
    assert RedisBlobs(sync_client(settings)).get("s", ["h"]) == {}
    client = async_client(settings)
    assert await RedisAsyncBlobs(client).get("s", ["h"]) == {}
    await client.aclose()


def test_a_host_that_the_certificate_does_not_name_is_taken_where_it_is_not_asked_for(server: Server) -> None:
    settings = server.settings(url=f"rediss://localhost:{server.tls}/0", tls_check_hostname=False)
    assert RedisBlobs(sync_client(settings)).get("s", ["h"]) == {}


async def test_missing_rights_are_named(server: Server) -> None:
    scope, replica = names()
    client = async_client(server.settings(username="reader"))
    assert await RedisAsyncBlobs(client).get(scope, ["h"]) == {}
    for command, call in (
        ("set", lambda: RedisValues(client).put(scope, {"k": b"v"}, MINUTE_MS)),
        ("evalsha", lambda: RedisLeases(client).acquire(replica, "me")),
        ("script", lambda: RedisLedger(client).restore([("ab" * 16, replica, "applied")])),
        ("hget", lambda: RedisLedger(client).read("ab" * 16, replica)),
        ("ft._list", lambda: RedisSemanticCache(client, now_ms=wall_clock_ms).sweep(1)),
        ("ft.search", lambda: RedisSemanticCache(client, now_ms=wall_clock_ms).find(CacheName(scope, "c", "f"), "q")),
    ):
        with pytest.raises(BrokenConfiguration, match=f"(?i)reader.*'{command}.*section: login and rights"):
            await call()
    await client.aclose()


async def test_a_right_that_is_missing_within_a_script_is_named(server: Server) -> None:
    """Redis tells of it in words of its own."""
    with redis.Redis(port=server.plain, password=PASSWORD) as admin:
        rights = ("~stoker:*", "-@all", "+evalsha", "+script|load", "+hmget")
        admin.execute_command("ACL", "SETUSER", "scripts", "on", f">{PASSWORD}", *rights)
        admin.execute_command("ACL", "SETUSER", "elsewhere", "on", f">{PASSWORD}", "~other:*", "+@all")
    client = async_client(server.settings(username="scripts"))
    with pytest.raises(BrokenConfiguration, match=r"(?i)'time'.*section: login and rights"):
        await RedisLeases(client).acquire("r-scripts", "me")
    await client.aclose()
    other = async_client(server.settings(username="elsewhere"))
    with pytest.raises(BrokenConfiguration, match=r"(?i)key.*section: login"):
        await RedisLeases(other).acquire("r-scripts", "me")
    await other.aclose()
