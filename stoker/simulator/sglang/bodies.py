"""Request bodies of SGLang, as far as they change what the simulator does; unknown fields are ignored."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from stoker.simulator.bodies import Message

TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class SamplingParams(msgspec.Struct, kw_only=True):
    """How a native request wants its answer."""

    max_new_tokens: Annotated[int, msgspec.Meta(ge=0)] = 128


class Asking(msgspec.Struct, kw_only=True):
    """Fields that all generating routes share."""

    rid: str | None = None
    lora_path: str | None = None
    extra_key: str | None = None
    priority: int | None = None
    stream: bool = False


class NativeBody(Asking, kw_only=True):
    """POST /generate: a text or ids, no model, and no salt."""

    text: str | None = None
    input_ids: list[TokenId] | None = None
    sampling_params: SamplingParams = msgspec.field(default_factory=SamplingParams)


class OpenAiBody(Asking, kw_only=True):
    """What both OpenAI routes share. Any model is taken; `base:adapter` names an adapter."""

    model: str = "default"
    cache_salt: str | None = None


class CompletionBody(OpenAiBody, kw_only=True):
    """POST /v1/completions."""

    prompt: str | list[TokenId]
    max_tokens: Positive = 16


class ChatBody(OpenAiBody, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None = None
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None


class TokenizeBody(msgspec.Struct, kw_only=True):
    """POST /v1/tokenize, of a text or of messages."""

    prompt: str | None = None
    messages: list[Message] | None = None
    tools: list[dict[str, Any]] | None = None


class LoadBody(msgspec.Struct):
    """POST /load_lora_adapter."""

    lora_name: str
    lora_path: str
    pinned: bool = False


class UnloadBody(msgspec.Struct):
    """POST /unload_lora_adapter."""

    lora_name: str


class AbortBody(msgspec.Struct):
    """POST /abort_request: every request whose id begins with `rid`."""

    rid: str = ""
    abort_all: bool = False
