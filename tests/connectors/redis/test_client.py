"""Connections: options, faults, and repeating a call whose answer was lost."""

from __future__ import annotations

import socket
import uuid
from pathlib import Path

import pytest
from redis import exceptions

from connectors.redis import RedisAsyncBlobs, RedisBlobs, RedisLedger, async_client, client_options, sync_client
from connectors.redis.client import lua, sorted_faults
from connectors.redis.keys import lease_key, ledger_key
from connectors.settings import RedisSettings, SecretRef
from schemas.errors import BrokenConfiguration, StackFault, StokerError, TransientFault


def test_options_hold_login_and_authorities() -> None:
    settings = RedisSettings(
        url="rediss://host:6379/0", username="u", password=SecretRef(env="PW"), tls_cafile=Path("ca.pem")
    )
    options = client_options(settings, {"PW": "p"})
    assert (options["username"], options["password"], options["ssl_ca_certs"]) == ("u", "p", "ca.pem")
    assert options["ssl_check_hostname"] is True
    assert options["socket_timeout"] == 2.0
    with pytest.raises(BrokenConfiguration, match="PW"):
        client_options(settings, {})


@pytest.mark.parametrize("url", ["redis://h:1/0", "rediss://h:1/0", "unix:///run/redis.sock"])
def test_both_clients_take_the_options_of_every_kind_of_url(url: str) -> None:
    settings = RedisSettings(url=url)
    sync_client(settings).connection_pool.make_connection()
    async_client(settings).connection_pool.make_connection()


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (exceptions.ConnectionError(), TransientFault),
        (exceptions.TimeoutError(), TransientFault),
        (exceptions.BusyLoadingError(), TransientFault),
        (exceptions.OutOfMemoryError(), TransientFault),
        (exceptions.InvalidResponse("half an answer"), TransientFault),
        (exceptions.MasterDownError("no master"), TransientFault),
        (exceptions.AuthenticationError(), BrokenConfiguration),
        (exceptions.NoPermissionError(), BrokenConfiguration),
        (exceptions.ResponseError("unknown command"), StackFault),
    ],
)
def test_fault_is_sorted(fault: Exception, kind: type[StokerError]) -> None:
    with pytest.raises(kind, match="doing something") as raised, sorted_faults("doing something"):
        raise fault
    assert type(raised.value) is kind


async def test_redis_that_is_not_there_is_a_transient_fault() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        settings = RedisSettings(url=f"redis://127.0.0.1:{taken.getsockname()[1]}/0", timeout_ms=200)
        with pytest.raises(TransientFault):
            RedisBlobs(sync_client(settings)).get("s", ["h"])
        client = async_client(settings)
        with pytest.raises(TransientFault):
            await RedisAsyncBlobs(client).get("s", ["h"])
        with pytest.raises(TransientFault):
            await RedisLedger(client).begin("ab" * 16, "r", "h")
        await client.aclose()


@pytest.mark.service
async def test_begin_repeated_by_the_client_still_starts(redis_url: str) -> None:
    """The answer was lost: redis-py sends the same call again and gets the same answer."""
    client = async_client(RedisSettings(url=redis_url))
    command = uuid.uuid4().hex
    keys = [ledger_key(command, "r"), lease_key("r")]
    begin = client.register_script(lua("ledger_begin"))
    for holder, attempt, expected in (
        ("h1", "a1", [1, 0]),
        ("h1", "a1", [1, 0]),
        ("h1", "a2", [0, b"started", b"h1"]),
        ("h2", "a3", [1, 1]),
        ("h2", "a3", [1, 1]),
    ):
        assert await begin(keys=keys, args=[holder, attempt, 60_000, lease_key(holder)]) == expected
    await client.aclose()


@pytest.mark.service
async def test_scripts_and_connections_survive_a_redis_that_forgot_them(redis_url: str) -> None:
    client = async_client(RedisSettings(url=redis_url))
    ledger = RedisLedger(client)
    await ledger.begin(uuid.uuid4().hex, "r", "h")
    await client.script_flush()
    await client.client_kill_filter(_type="normal", skipme=False)
    await ledger.begin(uuid.uuid4().hex, "r", "h")
    await ledger.restore([(uuid.uuid4().hex, "r", "applied")])
    await client.aclose()
