"""One engine over HTTP: a call within a deadline, its answer in shape, and what a bad answer means.

Shared by every engine with an HTTP API. Only `TransientFault` and `RefusedCommand` leave it, except cancellation.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import httpx
import msgspec

from schemas.errors import RefusedCommand, TransientFault

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 30.0
MAX_CONNECTIONS = 64
REASON_CHARS = 300

_DISTRUSTED = "; executor.engine_cafile must hold the authority that signed its certificate, which must name this host"
_RETRYABLE = (408, 429, 502, 503, 504)
_SWITCHED_OFF = "Not Found"


class Unanswered(TransientFault):
    """No whole answer came, or none in time: the engine may still be at work on it."""


class EngineHttp:
    """The HTTP client of one replica.

    Args:
        url: base URL, without a path.
        timeout_s: how long a call waits when its own `timeout_s` is None.
        headers: sent with every request, such as an authorization; never logged.
        max_connections: calls that wait at the same time beyond this queue up on this side.
        transport: another httpx transport, for tests.
        tls: who is trusted at https; certifi's authorities if None.
        on_refused: called when a connection is refused: what listens there next may be another version.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        headers: Mapping[str, str] | None = None,
        max_connections: int = MAX_CONNECTIONS,
        transport: httpx.AsyncBaseTransport | None = None,
        tls: ssl.SSLContext | None = None,
        on_refused: Callable[[], None] = lambda: None,
    ) -> None:
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._on_refused = on_refused
        self._client = httpx.AsyncClient(
            base_url=self.url,
            headers=dict(headers or {}),
            limits=httpx.Limits(max_connections=max_connections, max_keepalive_connections=max_connections),
            timeout=None,
            transport=transport,
            verify=True if tls is None else tls,
            trust_env=False,  # a replica is not reached through a proxy of the environment
        )

    async def ask(
        self,
        shape: type[T],
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> T:
        """A call that must succeed, and its answer as `shape`."""
        answer = await self.call(method, path, body, timeout_s)
        self.check(answer, path)
        return self.shaped(shape, answer, path)

    async def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout_s: float | None = None
    ) -> httpx.Response:
        """One exchange within a total deadline; leaving early closes the connection, which cancels at the engine.

        The exchange is a task of its own, cancelled once: httpcore leaves its connection open, and the engine at work,
        when a second cancellation comes while it closes.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        exchange = asyncio.create_task(self._client.request(method, path, json=body))
        try:
            await asyncio.wait((exchange,), timeout=limit_s)
            if exchange.done():
                return exchange.result()
        except (httpx.HTTPError, httpx.StreamError) as fault:
            told = f"{self.url}{path}: {type(fault).__name__} {fault}".rstrip()
            if isinstance(fault, httpx.ConnectError):
                if "CERTIFICATE_VERIFY_FAILED" in told:  # httpx keeps no more of it than the words
                    told += _DISTRUSTED
                self._on_refused()
                raise TransientFault(told) from fault
            raise Unanswered(told) from fault
        except RuntimeError as fault:  # httpx: the client has been closed while the call waited
            raise TransientFault(f"{self.url}{path}: {fault}") from fault
        finally:
            exchange.cancel()
        raise Unanswered(f"{self.url}{path} did not answer within {limit_s:g} s")

    def check(self, answer: httpx.Response, path: str) -> None:
        """Raise what an answer other than 2xx means."""
        if answer.is_success:
            return
        where = f"{self.url}{path}"
        if answer.status_code in _RETRYABLE or answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise TransientFault(f"{where} answered {answer.status_code}: {reason(answer)}")
        if is_switched_off(answer):
            raise RefusedCommand(f"{where} does not exist: the engine's operator switched this route off")
        raise RefusedCommand(f"{where} answered {answer.status_code}: {reason(answer)}")

    def shaped(self, shape: type[T], answer: httpx.Response, path: str) -> T:
        """The body as `shape`. A proxy's page or a half answer may be gone at the next try."""
        try:
            return msgspec.json.decode(answer.content, type=shape)
        except msgspec.ValidationError as fault:
            raise TransientFault(f"{self.url}{path} answered JSON of an unexpected shape: {fault}") from fault
        except msgspec.DecodeError as fault:
            raise TransientFault(f"{self.url}{path} answered something that is not JSON") from fault

    async def exists(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bool:
        """Whether the engine has a route, however it answers."""
        answer = await self.call(method, path, body)
        if answer.status_code in _RETRYABLE:
            self.check(answer, path)
        return not is_switched_off(answer)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def is_switched_off(answer: httpx.Response) -> bool:
    """A route that does not exist answers in another shape than an adapter that does not (production-stack #708)."""
    if answer.status_code != httpx.codes.NOT_FOUND:
        return False
    try:
        return bool(answer.json().get("detail") == _SWITCHED_OFF)
    except (ValueError, AttributeError):
        return True


def reason(answer: httpx.Response) -> str:
    """The engine's own words, shortened; its messages quote lengths and names, not prompts or salts, except for
    validation errors (type `Bad Request`), which quote the offending value and are left out.

    vLLM and newer SGLang put type and message below `error`, older SGLang beside it, and its native routes give a
    message alone.
    """
    try:
        body = answer.json()
        error = body.get("error", body)
        kind, message = error.get("type"), str(error["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return answer.reason_phrase
    if kind == "Bad Request" or "validation error" in message or "'input'" in message:
        return f"{kind or 'Bad Request'} in field {error.get('param')}"
    return f"{kind}: {message[:REASON_CHARS]}" if kind else message[:REASON_CHARS]
