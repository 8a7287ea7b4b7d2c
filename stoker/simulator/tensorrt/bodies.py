"""Request bodies of TensorRT-LLM, as far as they change what the simulator does. Unknown fields are refused, as there
(`OpenAIBaseModel` in serve/openai_protocol.py)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from stoker.simulator.bodies import Message

TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class LoraRequest(msgspec.Struct, forbid_unknown_fields=True):
    """An adapter that comes with its request."""

    lora_name: str
    lora_int_id: int
    lora_path: str = ""


class Asking(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Fields that both generating routes share. Any model is taken."""

    model: str
    max_tokens: Positive | None = None
    temperature: float | None = None
    lora_request: LoraRequest | None = None
    priority: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    stream: bool = False
    user: str | None = None


class CompletionBody(Asking, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/completions, without a salt."""

    prompt: str | list[TokenId]


class ChatBody(Asking, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/chat/completions. `prompt_token_ids` come in place of what the messages render to."""

    messages: list[Message]
    prompt_token_ids: list[TokenId] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = "none"
    max_completion_tokens: Positive | None = None
    add_generation_prompt: bool = True
    cache_salt: str | None = None


class TokenizeBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """POST /_internal/tokenize, of a text only."""

    prompt: str
    model: str | None = None
