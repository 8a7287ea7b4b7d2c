"""The two generating routes: from a body to work for the engine, and from words to an answer or a stream."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec

from stoker.simulator import answers
from stoker.simulator.adapters import Adapter
from stoker.simulator.answers import Usage
from stoker.simulator.bodies import ChatBody, CompletionBody, Generation, check_generation, completion_prompts
from stoker.simulator.chain import TOKEN_BYTES
from stoker.simulator.engine import SimulatedEngine
from stoker.simulator.errors import (
    bad_request,
    queue_full,
    refused,
    too_long,
    unknown_model,
)
from stoker.simulator.tokenizer import ANSWER_WORDS
from stoker.simulator.work import Finish, QueueFull, Work

_COMPLETION_TOKENS = 16
_encode = msgspec.json.Encoder().encode


class Generating:
    """One request to a generating route, checked and ready to run.

    Args:
        engine: the replica.
        body: its decoded body.
        request_id: from the X-Request-Id header, which wins over the body's.

    Raises:
        ApiError: whatever vLLM refuses before it starts.
    """

    def __init__(self, engine: SimulatedEngine, body: CompletionBody | ChatBody, request_id: str | None) -> None:
        self.engine = engine
        self.body = body
        self.chat = isinstance(body, ChatBody)
        self.model = body.model or engine.config.model
        check_generation(body)
        adapter = resolve_model(engine, self.model)
        base_id = request_id or body.request_id or secrets.token_hex(8)
        self.answer_id = f"{'chatcmpl' if self.chat else 'cmpl'}-{base_id}"
        self.works = [self._work(prompt, adapter, base_id) for prompt in self._prompts()]

    def _prompts(self) -> list[bytes]:
        tokenizer = self.engine.tokenizer
        if isinstance(self.body, CompletionBody):
            return completion_prompts(self.body, tokenizer, self.engine.config)
        if not self.body.messages:
            raise refused("Cannot apply chat template to an empty conversation. Provide at least one message.")
        messages = ((message.role, message.text) for message in self.body.messages)
        return [tokenizer.chat(messages, self.body.tools or [], self.body.add_generation_prompt)]

    def _work(self, prompt: bytes, adapter: Adapter | None, base_id: str) -> Work:
        config, body = self.engine.config, self.body
        tokens = len(prompt) // TOKEN_BYTES
        limit = config.context_tokens
        if tokens == 0:
            raise refused("The decoder prompt cannot be empty")
        if tokens > limit:
            raise too_long(limit, tokens)
        if tokens == limit:
            raise bad_request("max_tokens must be at least 1, got 0.", "max_tokens", 0)
        wanted, finish = _answer_length(body, config.answer_tokens)
        return Work(
            request_id=base_id,
            prompt=prompt,
            answer_tokens=min(wanted, limit - tokens),
            finish=finish,
            adapter=adapter,
            salt=body.cache_salt,
            priority=body.priority,
        )

    async def whole(self) -> bytes:
        """The answer in one piece. Raises ApiError 503 at a queue limit."""
        texts: list[tuple[str, str]] = []
        for work in self.works:
            async with self._running(work) as numbers:
                text = "".join([ANSWER_WORDS[number] async for number in numbers])
            texts.append((text, work.outcome))
        usage = Usage.of(self.works, self.engine.config, self.chat)
        if self.chat:
            return _encode(answers.chat(self.answer_id, self.model, *texts[0], usage))
        return _encode(answers.completion(self.answer_id, self.model, texts, usage))

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """The answer as server-sent events. The first thing it gives is b"", once the engine took the request, so that
        a queue limit can still answer 503."""
        for index, work in enumerate(self.works):
            async with self._running(work) as numbers:
                if index == 0:
                    yield b""
                opened = False
                async for number in numbers:
                    if self.chat and not opened:
                        yield _event(answers.chat_opening(self.answer_id, self.model))
                        opened = True
                    finish = work.finish if work.answered == work.answer_tokens else None
                    yield _event(self._chunk(index, ANSWER_WORDS[number], finish))
                if work.outcome == "abort":
                    yield _event(self._chunk(index, "", "abort"))
        if self.body.include_usage:
            kind = "chat.completion.chunk" if self.chat else "text_completion"
            usage = Usage.of(self.works, self.engine.config, self.chat)
            yield _event(answers.usage_chunk(self.answer_id, kind, self.model, usage))
        yield b"data: [DONE]\n\n"

    def _chunk(self, index: int, text: str, finish: str | None) -> dict[str, Any]:
        if self.chat:
            return answers.chat_chunk(self.answer_id, self.model, text, finish)
        return answers.completion_chunk(self.answer_id, self.model, index, text, finish)

    @contextlib.asynccontextmanager
    async def _running(self, work: Work) -> AsyncIterator[AsyncIterator[int]]:
        try:
            async with self.engine.request(work) as numbers:
                yield numbers
        except QueueFull as full:
            raise queue_full(full.reason) from full


def resolve_model(engine: SimulatedEngine, model: str) -> Adapter | None:
    """The adapter that a model name stands for, None for the base model. Raises ApiError 404."""
    if model == engine.config.model:
        return None
    adapter = engine.adapters.names.get(model)
    if adapter is None:
        raise unknown_model(model, engine.config.model)
    return adapter


def _answer_length(body: Generation, default: int) -> tuple[int, Finish]:
    """Words to generate, and why it ends: a request without a limit stops by itself."""
    limit = body.max_tokens
    if isinstance(body, ChatBody) and body.max_completion_tokens is not None:
        limit = body.max_completion_tokens
        if limit < 1:
            raise bad_request(f"max_tokens must be at least 1, got {limit}.", "max_tokens", limit)
    if limit is None:
        return (default, "stop") if isinstance(body, ChatBody) else (_COMPLETION_TOKENS, "length")
    return limit, "length"


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + _encode(chunk) + b"\n\n"
