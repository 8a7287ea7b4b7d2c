"""A node of LMCache over HTTP: warm prefetches from L2 (storage) into L1 (host memory). Written against 0.5.6."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from connectors.engines.base import Salt
from connectors.engines.http import EngineHttp
from connectors.tiers.base import Fetched
from schemas.errors import RefusedCommand, TransientFault

T = TypeVar("T")

FIRST_LOOK_S = 0.01
LONGEST_PAUSE_S = 0.25
UNSALTED = "_default"
"""What stands for no salt in its list of quotas."""
ISOLATED = "IsolatedLRU"
_PREFETCHES = "/cache/prefetches"


class Eviction(msgspec.Struct, frozen=True):
    """How L1 evicts."""

    eviction_policy: str


class L1(msgspec.Struct, frozen=True):
    """Of the storage manager."""

    eviction: Eviction


class Storage(msgspec.Struct, frozen=True):
    """Of GET /config."""

    l1_manager_config: L1


class Server(msgspec.Struct, frozen=True):
    """Of GET /config."""

    chunk_size: int


class NodeConfig(msgspec.Struct, frozen=True):
    """GET /config, the part that matters here."""

    mp: Server
    storage_manager: Storage

    @property
    def isolated(self) -> bool:
        """Whether what lies under a salt without a quota is evicted at once."""
        return self.storage_manager.l1_manager_config.eviction.eviction_policy == ISOLATED


class Quotas(msgspec.Struct, frozen=True):
    """GET /quota: by salt. The route of one salt's quota is not used: it would put the salt into access logs."""

    users: dict[str, Any] = {}


class Submitted(msgspec.Struct, frozen=True):
    """POST /cache/prefetches; without an id where the prompt is shorter than a chunk."""

    status: str
    chunks: int = 0
    request_id: str = ""


class Status(msgspec.Struct, frozen=True):
    """GET /cache/prefetches/{id}. `found_keys` counts what was in L1 before as well (LMCache PR #5086)."""

    status: str
    found_keys: int = 0
    total_keys: int = 0


class LmcacheNode:
    """The node beside one replica; see `connectors.tiers.base.KvTier` for the contract.

    Args:
        url: of its HTTP API.
        world_size: ranks that the model's KV is cut into.
        transport: another httpx transport, for tests.
    """

    def __init__(
        self,
        url: str,
        *,
        world_size: int = 1,
        transport: httpx.AsyncBaseTransport | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._http = EngineHttp(url, on_refused=self._forget, transport=transport, tls=tls)
        self._world_size = world_size
        self._config: NodeConfig | None = None

    def __repr__(self) -> str:
        return f"LmcacheNode({self._http.url!r})"

    def _forget(self) -> None:
        """What listens there next may have other flags."""
        self._config = None

    async def fetch(self, model: str, tokens: Sequence[int], salt: Salt | None, *, timeout_s: float) -> Fetched:
        """POST /cache/prefetches, then its status until it is complete."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._fetch(model, tokens, salt)
        except TimeoutError as late:
            raise TransientFault(f"{self._http.url} had not fetched all within {timeout_s:g} s") from late

    async def _fetch(self, model: str, tokens: Sequence[int], salt: Salt | None) -> Fetched:
        if self._config is None:
            self._config = await self._ask(NodeConfig, "GET", "/config")
        config = self._config
        if len(tokens) < config.mp.chunk_size:
            return Fetched(whole=False)
        name = "" if salt is None else salt.value
        if config.isolated and (name or UNSALTED) not in (await self._ask(Quotas, "GET", "/quota")).users:
            raise RefusedCommand(f"{self._http.url} has no quota for this salt, and evicts what has none ({ISOLATED})")
        body = {"model_name": model, "world_size": self._world_size, "token_ids": list(tokens), "cache_salt": name}
        submitted = await self._ask(Submitted, "POST", _PREFETCHES, body)
        if not submitted.chunks:
            return Fetched(whole=False)
        done = await self._completed(submitted.request_id)
        whole = done.found_keys >= done.total_keys > 0
        return Fetched(whole, submitted.chunks * config.mp.chunk_size if whole else 0, missing=not whole)

    async def _completed(self, request_id: str) -> Status:
        """The result, which is given once: an answer that gets lost on its way is lost for good."""
        pause_s = FIRST_LOOK_S
        while True:
            status = await self._ask(Status, "GET", f"{_PREFETCHES}/{quote(request_id, safe='')}")
            if status.status == "completed":
                return status
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _ask(self, shape: type[T], method: str, path: str, body: Mapping[str, Any] | None = None) -> T:
        answer = await self._http.call(method, path, body)
        if answer.is_success:
            return self._http.shaped(shape, answer, path)
        told = f"{self._http.url}{path} answered {answer.status_code}"
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            raise TransientFault(f"{told}: it knows no such model with a world size of {self._world_size} yet")
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS or answer.is_server_error:
            raise TransientFault(told)
        raise RefusedCommand(told)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()
