"""What engines share of OpenAI's API: the body of a chat, and the shapes of answers as far as Stoker reads them.

Fields that Stoker does not use are ignored, so that a newer engine may add to them. What has another shape is no answer
of an engine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, get_args

import msgspec

from connectors.engines.base import (
    ChatMessage,
    EngineKind,
    Generated,
    LoadedAdapter,
    Messages,
    Prompt,
    Salt,
    Text,
    Tokens,
    Tool,
    Warmed,
)
from schemas.errors import RefusedCommand

TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
HELLO = "Hello"
"""The shortest prompt: below every block, so it fills no cache."""


class Version(msgspec.Struct, frozen=True):
    """GET /version, where there is one."""

    version: str = ""


class ModelCard(msgspec.Struct, frozen=True):
    """One entry of GET /v1/models; an adapter's has a parent. `owned_by` names the engine."""

    id: str
    owned_by: str | None = None
    parent: str | None = None
    root: str | None = None
    max_model_len: int | None = None


class ModelList(msgspec.Struct, frozen=True):
    """GET /v1/models."""

    data: tuple[ModelCard, ...]

    @property
    def adapters(self) -> tuple[LoadedAdapter, ...]:
        """The adapters among them."""
        return tuple(LoadedAdapter(card.id, card.root or "", card.parent) for card in self.data if card.parent)

    @property
    def context_tokens(self) -> int | None:
        """Longest prompt and answer together; None where no model tells it."""
        return min((card.max_model_len for card in self.data if card.max_model_len), default=None)

    def base_models(self, kind: EngineKind, url: str) -> tuple[str, ...]:
        """The models without adapters.

        Raises:
            RefusedCommand: none is served, or an engine of another kind answers here.
        """
        owners = {card.owned_by for card in self.data}
        for other in get_args(EngineKind):
            if other != kind and other in owners:
                raise wrong_kind(url, kind, other)
        models = tuple(card.id for card in self.data if card.parent is None)
        if not models:
            raise RefusedCommand(f"{url} serves no base model")
        return models


def wrong_kind(url: str, configured: EngineKind, found: EngineKind) -> RefusedCommand:
    """What to say of a replica that is another engine than its settings tell."""
    return RefusedCommand(
        f"{url} answers as {found}, and its settings say {configured}: set kind = {found!r} for it in executor.engines"
    )


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


def metrics_kind(page: str) -> EngineKind | None:
    """Whose names a /metrics page has; None where it has nobody's. That of TensorRT-LLM is a JSON list."""
    if page.startswith("["):
        return "tensorrt_llm"
    return next((kind for kind in get_args(EngineKind) if f"{kind}:" in page), None)


def metrics_of(kind: EngineKind, url: str, page: str) -> str:
    """The page, if it is not another engine's.

    Raises:
        RefusedCommand: it is.
    """
    found = metrics_kind(page)
    if found is not None and found != kind:
        raise wrong_kind(url, kind, found)
    return page


def chat_body(messages: Sequence[ChatMessage], tools: Sequence[Tool] | None) -> dict[str, Any]:
    """The part of a request to /v1/chat/completions that says what the chat is."""
    body: dict[str, Any] = {"messages": list(messages)}
    if tools:
        # The template renders tools either way; with "none" no tool parser needs to be configured.
        body |= {"tools": list(tools), "tool_choice": "none"}
    return body


def warmed(answer: Completion) -> Warmed:
    """What a one-token completion found and left behind, as far as it tells."""
    prompt_tokens = (answer.usage.prompt_tokens if answer.usage else None) or 0
    return Warmed(prompt_tokens, answer.details.cached_tokens, answer.details.created_cache_tokens)


def generated(answer: ChatCompletion) -> Generated:
    """What was answered to a chat."""
    first, found = next(iter(answer.choices), None), warmed(answer)
    return Generated(
        text="" if first is None else first.message.content or "",
        finish_reason="" if first is None else first.finish_reason or "",
        prompt_tokens=found.prompt_tokens,
        cached_tokens=found.cached_tokens,
        answer_tokens=(answer.usage.completion_tokens if answer.usage else None) or 0,
    )


def is_loaded(adapters: Sequence[LoadedAdapter], name: str, path: str) -> bool:
    """Whether an adapter is among those that an engine lists.

    Raises:
        RefusedCommand: it is, with other weights.
    """
    known = {adapter.name: adapter for adapter in adapters}.get(name)
    if known is not None and known.path != path:
        raise RefusedCommand(f"adapter {name} is already loaded from another path: give each version a new name")
    return known is not None


async def warmed_as(
    warm_messages: Callable[..., Awaitable[Warmed]],
    warm_tokens: Callable[..., Awaitable[Warmed]],
    model: str,
    prompt: Prompt,
    *,
    adapter: str | None,
    salt: Salt | None,
    request_id: str,
    timeout_s: float | None,
) -> Warmed:
    """`Engine.resident` of an engine without a look-up that leaves the cache alone: the request of a warm-up."""
    match prompt:
        case Messages(messages, tools):
            return await warm_messages(
                model,
                messages,
                tools=tools,
                adapter=adapter,
                salt=salt,
                request_id=request_id,
                timeout_s=timeout_s,
            )
        case Tokens(ids):
            tokens: Sequence[int] | str = ids
        case Text(text):
            tokens = text
    return await warm_tokens(model, tokens, adapter=adapter, salt=salt, request_id=request_id, timeout_s=timeout_s)
