"""Connections to one Redis, and redis-py's exceptions sorted into Stoker's error tree."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from typing import Any

import redis
import redis.asyncio
from redis import exceptions
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from connectors.settings import RedisSettings
from connectors.tls import client_context
from schemas.errors import BrokenConfiguration, StackFault, TransientFault

RETRIES = 2
"""A pooled connection that went stale when Redis restarted costs one attempt; two let a restart pass unnoticed."""
_RETRIED: list[type[Exception]] = [exceptions.ConnectionError, exceptions.TimeoutError]


def client_options(settings: RedisSettings, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Keyword arguments of `from_url`, besides the URL. The result holds the revealed password: never log it.

    Args:
        environ: replaces the process environment when the password is looked up.

    Raises:
        BrokenConfiguration: the password's place is empty.
    """
    options: dict[str, Any] = {
        "socket_timeout": settings.timeout_ms / 1000,
        "socket_connect_timeout": settings.timeout_ms / 1000,
        "max_connections": settings.max_connections,
        "retry_on_error": _RETRIED,
    }
    if settings.url.startswith("unix"):
        del options["socket_connect_timeout"]
    if settings.username is not None:
        options["username"] = settings.username
    if settings.password is not None:
        options["password"] = settings.password.reveal(environ)
    if settings.uses_tls:
        options["ssl_check_hostname"] = settings.tls_check_hostname  # redis-py's own default is not to
        files = {
            "ssl_ca_certs": settings.tls_cafile,
            "ssl_certfile": settings.tls_certfile,
            "ssl_keyfile": settings.tls_keyfile,
        }
        options |= {name: str(path) for name, path in files.items() if path is not None}
    return options


def _demand_files(settings: RedisSettings) -> None:
    """
    Raises:
        BrokenConfiguration: a file of TLS cannot be used. redis-py would only say that it cannot connect.
    """
    if settings.uses_tls:
        client_context(
            "redis.tls_", cafile=settings.tls_cafile, certfile=settings.tls_certfile, keyfile=settings.tls_keyfile
        )


def _wait_s(settings: RedisSettings) -> float:
    """How long a call waits for a connection: as long as the calls before it may need with their repetitions.

    The plain pools raise above `max_connections` instead of waiting, which looks like a Redis that does not answer.
    """
    return settings.timeout_ms / 1000 * (RETRIES + 1)


def sync_client(settings: RedisSettings) -> redis.Redis:
    """A blocking client, for jobs. Connects on first use; answers are bytes.

    Raises:
        BrokenConfiguration: a secret is missing, or a file of TLS cannot be used.
    """
    _demand_files(settings)
    retry = Retry(ExponentialBackoff(cap=0.5, base=0.05), RETRIES)
    pool = redis.BlockingConnectionPool.from_url(
        settings.url, retry=retry, timeout=_wait_s(settings), **client_options(settings)
    )
    client: redis.Redis = redis.Redis.from_pool(pool)
    return client


def async_client(settings: RedisSettings) -> redis.asyncio.Redis:
    """An asyncio client, for the executor. Connects on first use; answers are bytes.

    Raises:
        BrokenConfiguration: a secret is missing, or a file of TLS cannot be used.
    """
    _demand_files(settings)
    retry = AsyncRetry(ExponentialBackoff(cap=0.5, base=0.05), RETRIES)
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        settings.url, retry=retry, timeout=_wait_s(settings), **client_options(settings)
    )
    client: redis.asyncio.Redis = redis.asyncio.Redis.from_pool(pool)
    return client


def lua(name: str) -> str:
    """The text of a script that lies beside this file."""
    return resources.files(__package__).joinpath(f"{name}.lua").read_text(encoding="utf-8")


_REFUSES_US = ("CERTIFICATE", "UNKNOWN_CA")
"""In the reasons of the alerts by which a server refuses a client's certificate."""

_NO_RIGHT_IN_A_SCRIPT = "ACL failure in script"
"""Redis gives a right that is missing within a script no error code of its own."""


def _why_refused(fault: BaseException) -> str | None:
    """What is wrong with TLS, with the cure; None if the connection failed for another reason, which may pass."""
    link: BaseException | None = fault
    while link is not None and not isinstance(link, ssl.SSLError):
        link = link.__cause__ or link.__context__
    if link is None:
        return None
    if isinstance(link, ssl.SSLCertVerificationError):
        return (
            f"the server's certificate is refused ({link.verify_message}); redis.tls_cafile must hold the authority"
            " that signed it, and it must name the host of redis.url (else tls_check_hostname = false)"
        )
    reason = link.reason or ""
    if "ALERT" in reason and any(part in reason for part in _REFUSES_US):
        return (
            f"the server refuses our certificate ({reason}); redis.tls_certfile and redis.tls_keyfile must hold one"
            " that it trusts"
        )
    return None


def _without_rights(doing: str, fault: Exception) -> BrokenConfiguration:
    return BrokenConfiguration(f"Redis, {doing}: {fault}; check the [redis] section: login and rights")


_PASSING = (
    exceptions.OutOfMemoryError,
    exceptions.ReadOnlyError,
    exceptions.TryAgainError,
    exceptions.ClusterDownError,
    exceptions.ExecAbortError,
    exceptions.InvalidResponse,
    exceptions.NoScriptError,
)
"""What a Redis answers that is full, demoted, or just ends or begins: half an answer, a script that it has not yet."""


@contextmanager
def sorted_faults(doing: str) -> Iterator[None]:
    """Turn what redis-py raises inside the block into Stoker's error tree."""
    try:
        yield
    except (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError) as fault:
        raise _without_rights(doing, fault) from fault
    except (exceptions.ConnectionError, exceptions.TimeoutError) as fault:
        if (why := _why_refused(fault)) is not None:
            raise BrokenConfiguration(f"Redis, {doing}: {why}") from fault
        raise TransientFault(f"Redis, {doing}: {type(fault).__name__}: {fault}") from fault
    except _PASSING as fault:
        raise TransientFault(f"Redis, {doing}: {fault}") from fault
    except exceptions.RedisError as fault:
        if isinstance(fault, exceptions.ResponseError) and str(fault).startswith(_NO_RIGHT_IN_A_SCRIPT):
            raise _without_rights(doing, fault) from fault
        raise StackFault(f"Redis, {doing}: {type(fault).__name__}: {fault}; is it Redis 7 or later?") from fault
