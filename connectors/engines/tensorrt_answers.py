"""The shapes of TensorRT-LLM's own answers, beside those that it shares with others (`openai_api`).

What a release has and takes its description (/openapi.json, which FastAPI makes) tells.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from connectors.engines.openai_api import Count


class ServerInfo(msgspec.Struct, frozen=True):
    """GET /server_info, as far as newer releases tell it."""

    tokens_per_block: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Schema(msgspec.Struct, frozen=True):
    """One request's fields."""

    properties: dict[str, Any] = {}


class Components(msgspec.Struct, frozen=True):
    """Requests and answers by name."""

    schemas: dict[str, Schema] = {}


class Description(msgspec.Struct, frozen=True):
    """GET /openapi.json."""

    components: Components = Components()

    def takes(self, field: str) -> bool:
        """Whether both generating routes take a field of this name."""
        known = self.components.schemas
        names = ("CompletionRequest", "ChatCompletionRequest")
        return all(name in known and field in known[name].properties for name in names)


class KvCacheStats(msgspec.Struct, frozen=True, rename="camel"):
    """Blocks at one iteration; `reused_blocks` and `missed_blocks` since the engine began."""

    max_num_blocks: Count = 0
    used_num_blocks: Count = 0
    tokens_per_block: Count = 0
    reused_blocks: Count = 0
    missed_blocks: Count = 0


class Iteration(msgspec.Struct, frozen=True, rename="camel"):
    """One entry of GET /metrics, which is a list: what was not asked for yet, oldest first."""

    num_active_requests: Count = 0
    num_queued_requests: Count = 0
    kv_cache_stats: KvCacheStats | None = None


Iterations = tuple[Iteration, ...]
