"""A node of LMCache in memory: an httpx transport that answers as 0.5.6 does, held to what a real one answered."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

_PREFETCHES = "/cache/prefetches"
_COLLIDES = "@"

Key = tuple[str, int, str, tuple[int, ...]]
"""Model, world size, salt, and all tokens up to the end of a chunk."""


@dataclass
class FakeNode(httpx.AsyncBaseTransport):
    """One node, its storage and its host memory.

    Args:
        chunk_tokens: nothing shorter is kept.
        eviction_policy: of host memory; nothing is evicted here.
        looks_pending: how often a prefetch is told to be pending before it is complete.
        fault: answered in place of everything, if set.
    """

    chunk_tokens: int = 256
    eviction_policy: str = "LRU"
    looks_pending: int = 1
    fault: httpx.Response | None = None
    host: set[Key] = field(default_factory=set)
    requests: list[httpx.Request] = field(default_factory=list)
    _storage: set[Key] = field(default_factory=set)
    _models: set[tuple[str, int]] = field(default_factory=set)
    _quotas: dict[str, dict[str, float]] = field(default_factory=dict)
    _jobs: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def register(self, model: str, world_size: int = 1) -> None:
        """An engine with this model has connected."""
        self._models.add((model, world_size))

    def store(self, model: str, tokens: Sequence[int], salt: str = "", world_size: int = 1) -> None:
        """An engine has computed this prompt; host memory has let go of it since."""
        self._storage.update(self._keys(model, world_size, salt, tokens))

    def set_quota(self, salt: str) -> None:
        """An operator has given this salt room."""
        self._quotas[salt or "_default"] = {"limit_gb": 1.0, "current_usage_gb": 0.0}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """One exchange."""
        self.requests.append(request)
        if self.fault is not None:
            return self.fault
        status, body = self._answer(request.method, request.url.path, request.content)
        return httpx.Response(status, json=body)

    def _answer(self, method: str, path: str, content: bytes) -> tuple[int, Any]:
        match method, path:
            case "GET", "/healthcheck":
                return 200, {"status": "healthy"}
            case "GET", "/config":
                eviction = {"eviction": {"eviction_policy": self.eviction_policy}}
                return 200, {
                    "mp": {"chunk_size": self.chunk_tokens},
                    "storage_manager": {"l1_manager_config": eviction},
                }
            case "GET", "/quota":
                return 200, {"users": self._quotas}
            case "POST", "/cache/prefetches":
                return self._submit(msgspec.json.decode(content))
        if method == "GET" and path.startswith(f"{_PREFETCHES}/"):
            return self._status(path.removeprefix(f"{_PREFETCHES}/"))
        return 404, {"detail": "Not Found"}

    def _submit(self, body: dict[str, Any]) -> tuple[int, Any]:
        missing = [name for name in ("model_name", "world_size", "token_ids") if name not in body]
        if missing:
            told: dict[str, Any] = {"type": "missing", "msg": "Field required", "input": body}
            return 422, {"detail": [told | {"loc": ["body", name]} for name in missing]}
        model, ranks, salt = body["model_name"], body["world_size"], body.get("cache_salt", "")
        source, target = body.get("source_tier", "l2"), body.get("target_tier", "l1")
        if (source, target) != ("l2", "l1"):
            return 400, {"detail": f"unsupported prefetch direction {source!r}->{target!r}; only 'l2'->'l1'"}
        if (model, ranks) not in self._models:
            known = f"no layout registered for model_name={model!r} world_size={ranks}"
            return 503, {"detail": f"{known}; the model has not allocated KV cache on this node yet"}
        if _COLLIDES in salt:
            return 400, {"detail": f"cache_salt must not contain {frozenset(_COLLIDES)} (got {salt!r})"}
        keys = self._keys(model, ranks, salt, body["token_ids"])
        if not keys:
            return 202, {"chunks": 0, "status": "noop"}
        found = [key for key in keys if key in self._storage or key in self.host]
        self.host.update(found)
        request_id = uuid.uuid4().hex
        self._jobs[request_id] = (self.looks_pending, len(found) * ranks, len(keys) * ranks)
        return 202, {"request_id": request_id, "chunks": len(keys), "status": "submitted"}

    def _status(self, request_id: str) -> tuple[int, Any]:
        job = self._jobs.pop(request_id, None)
        if job is None:
            told = f"unknown prefetch request_id={request_id!r} (already completed or never submitted)"
            return 404, {"detail": told}
        looks, found, total = job
        if looks:
            self._jobs[request_id] = (looks - 1, found, total)
            return 200, {"request_id": request_id, "status": "pending"}
        return 200, {"request_id": request_id, "status": "completed", "found_keys": found, "total_keys": total}

    def _keys(self, model: str, ranks: int, salt: str, tokens: Sequence[int]) -> list[Key]:
        ends = range(self.chunk_tokens, len(tokens) + 1, self.chunk_tokens)
        return [(model, ranks, salt, tuple(tokens[:end])) for end in ends]
