"""Values over HTTP: many keys in one POST, or one GET a key.

POST sends `{"scope": ..., "keys": [...]}` and reads `{"values": {key: value}}`; a key that is absent or null has none.
GET reads the body of each key as it is; 404 and 410 mean that there is none.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx

from connectors.redis.compression import MAX_BLOB_BYTES
from connectors.values.base import KeyFault, Loaded
from connectors.values.settings import HttpLoaderSettings
from connectors.values.texts import sorted_out, stored_form
from schemas.errors import RefusedCommand, TransientFault

MAX_ANSWER_BYTES = 64 << 20
CONNECTIONS = 16
_LATER = (408, 425, 429, 500, 502, 503, 504)
_LOGIN = (401, 403, 407)
_NONE = (404, 410)


class HttpLoader:
    """`Loader` on an HTTP service.

    Args:
        environ: replaces the process environment when the authorization is looked up.
        transport: another httpx transport, for tests.

    Raises:
        BrokenConfiguration: the authorization's place is empty.
    """

    def __init__(
        self,
        settings: HttpLoaderSettings,
        environ: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._settings = settings
        secret = settings.authorization
        self._client = httpx.AsyncClient(
            headers={} if secret is None else {"Authorization": secret.reveal(environ)},
            limits=httpx.Limits(max_connections=CONNECTIONS),
            timeout=None,
            transport=transport,
            trust_env=False,
        )

    async def load(self, scope: str, keys: Sequence[str]) -> Loaded:
        """The values of these keys; see `Loader.load`."""
        url = self._settings.url.replace("{scope}", quote(scope, safe=""))
        try:
            async with asyncio.timeout(self._settings.timeout_ms / 1000):
                return await (self._each(url, keys) if "{key}" in url else self._together(url, scope, keys))
        except TimeoutError:
            raise TransientFault(f"loader {self._settings.name}: no answer in {self._settings.timeout_ms} ms") from None

    async def _together(self, url: str, scope: str, keys: Sequence[str]) -> Loaded:
        name = self._settings.name
        try:
            status, body = await self._ask("POST", url, MAX_ANSWER_BYTES, {"scope": scope, "keys": list(keys)})
        except httpx.HTTPError as fault:
            raise TransientFault(f"loader {name}: {type(fault).__name__}") from fault
        if status in _LATER:
            raise TransientFault(f"loader {name}: status {status}")
        if not 200 <= status < 300:
            raise RefusedCommand(f"loader {name}: status {status}", "loader_failed")
        values = _values(body)
        if values is None:
            raise RefusedCommand(f'loader {name}: its answer is not {{"values": {{...}}}}', "loader_failed")
        return sorted_out({key: stored_form(values.get(key)) for key in keys})

    async def _each(self, url: str, keys: Sequence[str]) -> Loaded:
        got = await asyncio.gather(*(self._one(url.replace("{key}", quote(key, safe=""))) for key in keys))
        found = dict(zip(keys, got, strict=True))
        if found and all(value == "unanswered" for value in found.values()):
            raise TransientFault(f"loader {self._settings.name}: no key was answered")
        return sorted_out(found)

    async def _one(self, url: str) -> bytes | KeyFault:
        try:
            status, body = await self._ask("GET", url, MAX_BLOB_BYTES)
        except httpx.HTTPError:
            return "unanswered"
        if status in _LOGIN:
            raise RefusedCommand(f"loader {self._settings.name}: status {status}", "loader_failed")
        if status in _LATER:
            return "unanswered"
        if status in _NONE:
            return "not_found"
        if not 200 <= status < 300:
            return "refused"
        return "too_large" if body is None else body

    async def _ask(self, method: str, url: str, most_bytes: int, body: Any = None) -> tuple[int, bytes | None]:
        """Status and body; None for a body that is longer than it may be."""
        async with self._client.stream(method, url, json=body) as response:
            data = bytearray()
            async for piece in response.aiter_bytes():
                data += piece
                if len(data) > most_bytes:
                    return response.status_code, None
            return response.status_code, bytes(data)

    async def close(self) -> None:
        """Closes its connections."""
        await self._client.aclose()


def _values(body: bytes | None) -> dict[str, Any] | None:
    try:
        answer = json.loads(body or b"")
    except ValueError:
        return None
    values = answer.get("values") if isinstance(answer, dict) else None
    return values if isinstance(values, dict) else None
