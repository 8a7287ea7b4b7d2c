"""The shapes of SGLang's own answers, beside those that it shares with others (`openai_api`).

`/server_info` gives its start-up arguments, what its scheduler found out, and the description of its KV events, all in
one object (entrypoints/http_server.py; `describe_kv_events_publisher` of the server arguments). Only what Stoker acts
on is read.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from connectors.engines.base import EventSource
from connectors.engines.openai_api import Count

_WILDCARDS = ("*", "0.0.0.0", "::", "[::]", "")


class KvEventsPublisher(msgspec.Struct, frozen=True):
    """Where KV events are published: one socket a data-parallel rank, on ports that follow each other."""

    endpoint_port_base: int
    endpoint_host: str = "*"
    topic: str = ""
    dp_size: int = 1


class KvEventsConfig(msgspec.Struct, frozen=True):
    """`--kv-events-config` as it was given: the description leaves the replay socket out."""

    replay_endpoint: str | None = None


class ServerInfo(msgspec.Struct, frozen=True):
    """GET /server_info.

    Args:
        page_size: tokens a page of the cache; 1 unless a flag or the attention backend says otherwise.
        max_req_input_len: prompts of this length and more are refused.
        default_priority_value: priority of requests that name none; without it they come after all others.
        enable_cache_report: whether usage tells cached tokens on the OpenAI routes.
        kv_events: None where none are published, or where their socket cannot be dialled.
    """

    version: str
    page_size: Annotated[int, msgspec.Meta(ge=1)] = 1
    max_total_num_tokens: int | None = None
    max_req_input_len: int | None = None
    dp_size: int = 1
    disable_radix_cache: bool = False
    enable_cache_report: bool = False
    enable_lora: bool | None = None
    enable_lmcache: bool = False
    enable_priority_scheduling: bool = False
    default_priority_value: int | None = None
    schedule_low_priority_values_first: bool = False
    radix_eviction_policy: str = "lru"
    kv_events_config: str | None = None
    kv_events: KvEventsPublisher | None = None

    def event_sources(self, host: str) -> tuple[EventSource, ...]:
        """One a rank, as seen from here.

        Args:
            host: of the replica, for sockets that it bound to every address.
        """
        told = self.kv_events
        if told is None:
            return ()
        bound = host if told.endpoint_host in _WILDCARDS else told.endpoint_host
        replay = self._replay_port()
        return tuple(
            EventSource(
                rank=rank,
                endpoint=f"tcp://{bound}:{told.endpoint_port_base + rank}",
                replay_endpoint=None if replay is None else f"tcp://{bound}:{replay + rank}",
                topic=told.topic,
            )
            for rank in range(told.dp_size)
        )

    def _replay_port(self) -> int | None:
        try:
            given = msgspec.json.decode(self.kv_events_config or "{}", type=KvEventsConfig).replay_endpoint
            return None if given is None else int(given.rpartition(":")[2])
        except (msgspec.DecodeError, ValueError):
            return None


class MetaInfo(msgspec.Struct, frozen=True):
    """Accounting of one request on the native route, which always tells what was cached."""

    prompt_tokens: Count
    cached_tokens: Count | None = None


class Generation(msgspec.Struct, frozen=True):
    """POST /generate; the text is of no interest."""

    meta_info: MetaInfo


class AdapterUpdate(msgspec.Struct, frozen=True):
    """POST /load_lora_adapter and /unload_lora_adapter, with status 200 or 400."""

    success: bool = False
    error_message: str | None = None


class Load(msgspec.Struct, frozen=True):
    """One data-parallel rank of GET /v1/loads."""

    num_running_reqs: Count = 0
    num_waiting_reqs: Count = 0
    token_usage: float = 0.0


class Loads(msgspec.Struct, frozen=True):
    """GET /v1/loads (entrypoints/v1_loads.py)."""

    loads: tuple[Load, ...]
