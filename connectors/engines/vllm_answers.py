"""The shapes of vLLM's answers, as far as Stoker reads them. What has another shape is no answer of an engine.

Fields that Stoker does not use are ignored, so that a newer vLLM may add to them.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Version(msgspec.Struct, frozen=True):
    """GET /version."""

    version: str = ""


class ModelCard(msgspec.Struct, frozen=True):
    """One entry of GET /v1/models; an adapter's has a parent."""

    id: str
    parent: str | None = None
    root: str | None = None
    max_model_len: int | None = None


class ModelList(msgspec.Struct, frozen=True):
    """GET /v1/models."""

    data: tuple[ModelCard, ...]


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """What was found and what was added, where the engine tells it."""

    cached_tokens: Count | None = None
    created_cache_tokens: Count | None = None


class Usage(msgspec.Struct, frozen=True):
    """Accounting of one request."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: PromptTokensDetails | None = None


class Completion(msgspec.Struct, frozen=True):
    """POST /v1/completions and /v1/chat/completions; the text is of no interest."""

    usage: Usage | None = None

    @property
    def details(self) -> PromptTokensDetails:
        """The details, empty where there are none."""
        return (self.usage.prompt_tokens_details if self.usage else None) or PromptTokensDetails()


class AnswerMessage(msgspec.Struct, frozen=True):
    """What a choice says; null where it calls a tool."""

    content: str | None = None


class Choice(msgspec.Struct, frozen=True):
    """One answer to a chat."""

    message: AnswerMessage
    finish_reason: str | None = None


class ChatCompletion(Completion, frozen=True):
    """POST /v1/chat/completions where the text is wanted."""

    choices: tuple[Choice, ...] = ()


class Tokenized(msgspec.Struct, frozen=True):
    """POST /tokenize."""

    tokens: tuple[TokenId, ...]


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
