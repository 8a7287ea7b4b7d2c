"""The shapes of vLLM's own answers, beside those that it shares with others (`openai_api`)."""

from __future__ import annotations

import msgspec


class Sleeping(msgspec.Struct, frozen=True):
    """GET /is_sleeping."""

    is_sleeping: bool


class KvEventSource(msgspec.Struct, frozen=True):
    """One rank's entry of GET /kv_event_sources."""

    endpoint: str | None = None
    replay_endpoint: str | None = None
    topic: str = ""
    enable_kv_cache_events: bool = False


KvEventSources = dict[int, KvEventSource]


class Success(msgspec.Struct, frozen=True):
    """POST /reset_prefix_cache."""

    success: bool = False
