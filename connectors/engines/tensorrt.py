"""TensorRT-LLM (trtllm-serve) over HTTP. Written against sources of 2026 and never run against a real one: see
docs/engines.md.

Files of NVIDIA/TensorRT-LLM that facts come from are named without their prefix `tensorrt_llm/`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Unpack

import httpx

from connectors.engines.base import (
    Capabilities,
    ChatMessage,
    EngineMetrics,
    Generated,
    LoadedAdapter,
    Messages,
    Prompt,
    Salt,
    Text,
    Tool,
    Warmed,
)
from connectors.engines.events import KvEvent
from connectors.engines.http import is_switched_off
from connectors.engines.http_engine import Client, HttpEngine
from connectors.engines.openai_api import (
    HELLO,
    ChatCompletion,
    Completion,
    ModelList,
    Tokenized,
    Version,
    chat_body,
    generated,
    is_loaded,
    metrics_of,
    warmed,
    warmed_as,
)
from connectors.engines.tensorrt_answers import Description, Iteration, Iterations, ServerInfo
from connectors.engines.tensorrt_metrics import from_iteration, parse_metrics
from connectors.engines.tensorrt_requests import KnownAdapters, addressed
from connectors.engines.tensorrt_trial import heeds_adapter
from schemas.errors import RefusedCommand

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


class TensorrtEngine(HttpEngine):
    """One TensorRT-LLM replica; see `connectors.engines.base.Engine` for the contract.

    It loads an adapter with the first request that brings it along, and lists none: this object remembers which it has
    sent. Salts go by the chat route alone.

    Args:
        url, client: of its HTTP API, see `HttpEngine`.
    """

    def __init__(self, url: str, **client: Unpack[Client]) -> None:
        super().__init__(url, **client)
        self._adapters = KnownAdapters(self.url)
        self._probing = asyncio.Lock()
        self._trying = asyncio.Lock()
        self._forget()

    def _forget(self) -> None:
        self._probed: Capabilities | None = None
        self._takes_priority = False
        self._block_tokens: int | None = None
        self._iteration: Iteration | None = None
        self._heeds_adapters: bool | None = None
        self._adapters.clear()

    async def capabilities(self) -> Capabilities:
        """Ask once in an engine's life: models, version, description, and one token, for its usage details. The size of
        a block comes later where only metrics tell it."""
        async with self._probing:
            if self._probed is None:
                self._probed = await self._probe()
            return dataclasses.replace(self._probed, block_tokens=self._block_tokens)

    async def _probe(self) -> Capabilities:
        served = await self._http.ask(ModelList, "GET", "/v1/models")
        models = served.base_models("tensorrt_llm", self.url)
        version = (await self._http.ask(Version, "GET", "/version")).version
        self._takes_priority = (await self._described()).takes("priority")
        info = await self._http.call("GET", "/server_info")
        if info.is_success:
            self._block_tokens = self._http.shaped(ServerInfo, info, "/server_info").tokens_per_block
        hello = await self._say(models[0], HELLO)
        gauges = await self.metrics()
        return Capabilities(
            engine="tensorrt_llm",
            version=version,
            models=models,
            runtime_adapters=True,  # it does not tell whether it was started with LoRA: `load_adapter` finds out
            adapter_pins=False,
            usage_details=hello.cached_tokens is not None,
            sleep=False,
            block_tokens=self._block_tokens,
            num_blocks=gauges.blocks_total,
            max_prompt_tokens=None,
            # /kv_cache_events gives each event to the first that asks, and names no adapter (docs/engines.md).
            event_sources=(),
        )

    async def _described(self) -> Description:
        answer = await self._http.call("GET", "/openapi.json")
        if answer.status_code in (httpx.codes.NOT_FOUND, httpx.codes.INTERNAL_SERVER_ERROR):
            return Description()
        self._http.check(answer, "/openapi.json")
        return self._http.shaped(Description, answer, "/openapi.json")

    async def warm_messages(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[Tool] | None = None,
        adapter: str | None = None,
        salt: Salt | None = None,
        request_id: str,
        priority: int | None = None,
        timeout_s: float | None = None,
    ) -> Warmed:
        """One-token chat completion without the opening of an answer. No field takes the request's id."""
        del request_id
        fields = await self._accepted(model, adapter, salt, priority)
        body = chat_body(messages, tools) | fields | {"add_generation_prompt": False}
        return warmed(await self._http.ask(Completion, "POST", CHAT, body, timeout_s))

    async def warm_tokens(
        self,
        model: str,
        tokens: Sequence[int] | str,
        *,
        adapter: str | None = None,
        salt: Salt | None = None,
        request_id: str,
        priority: int | None = None,
        timeout_s: float | None = None,
    ) -> Warmed:
        """One-token text completion, which takes no salt: with one, a chat completion that carries its ids with it."""
        del request_id
        body = await self._accepted(model, adapter, salt, priority)
        if not tokens:
            raise RefusedCommand("a prompt has at least one token")
        if salt is None:
            body["prompt"] = tokens if isinstance(tokens, str) else list(tokens)
            return warmed(await self._http.ask(Completion, "POST", COMPLETIONS, body, timeout_s))
        async with self._within(timeout_s):
            if isinstance(tokens, str):
                tokens = await self.tokenize(model, Text(tokens), timeout_s=timeout_s)
            body |= {"messages": [], "prompt_token_ids": list(tokens)}
            return warmed(await self._http.ask(Completion, "POST", CHAT, body, timeout_s))

    async def generate(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[Tool] | None = None,
        adapter: str | None = None,
        salt: Salt | None = None,
        max_tokens: int,
        request_id: str,
        priority: int | None = None,
        timeout_s: float | None = None,
    ) -> Generated:
        """A chat completion as a user's would be, at temperature 0."""
        del request_id
        body = chat_body(messages, tools) | await self._accepted(model, adapter, salt, priority)
        body["max_tokens"] = max_tokens
        return generated(await self._http.ask(ChatCompletion, "POST", CHAT, body, timeout_s))

    async def resident(
        self,
        model: str,
        prompt: Prompt,
        *,
        adapter: str | None = None,
        salt: Salt | None = None,
        request_id: str,
        timeout_s: float | None = None,
    ) -> Warmed:
        """The same request as a warm-up: TensorRT-LLM has no look-up that leaves the cache alone."""
        return await warmed_as(
            self.warm_messages,
            self.warm_tokens,
            model,
            prompt,
            adapter=adapter,
            salt=salt,
            request_id=request_id,
            timeout_s=timeout_s,
        )

    async def probe(self, model: str | None, *, request_id: str, timeout_s: float | None = None) -> None:
        """POST /v1/completions, as short as it can be."""
        del request_id
        models = (await self.capabilities()).models
        lora = None if model is None or model in models else self._adapters.request_of(model)
        await self._say(models[0], HELLO, lora, timeout_s)

    async def _say(
        self, model: str, text: str, lora: Mapping[str, Any] | None = None, timeout_s: float | None = None
    ) -> Warmed:
        body = addressed(model, lora) | {"prompt": text}
        return warmed(await self._http.ask(Completion, "POST", COMPLETIONS, body, timeout_s))

    async def tokenize(self, model: str, prompt: Messages | Text, *, timeout_s: float | None = None) -> tuple[int, ...]:
        """POST /_internal/tokenize, for a text; refused by releases without it, and by all for messages."""
        await self._accepted(model)
        if isinstance(prompt, Messages):
            raise RefusedCommand(f"{self.url}: TensorRT-LLM does not tell the tokens of messages")
        return (
            await self._http.ask(Tokenized, "POST", "/_internal/tokenize", {"prompt": prompt.text}, timeout_s)
        ).tokens

    async def load_adapter(self, name: str, path: str, *, pinned: bool = False, timeout_s: float | None = None) -> None:
        """One token with it. The first adapter of an engine's life is also tried against the base model, since an
        engine without LoRA answers as if it had loaded it. It tells no missing adapter from a bad one."""
        del pinned  # `pin_adapter` says no
        if is_loaded(await self.adapters(), name, path):
            return
        model = (await self.capabilities()).models[0]
        lora = self._adapters.claim(name, path)
        try:
            async with self._within(timeout_s):
                if not await self._heeded(model, lora, timeout_s):
                    raise RefusedCommand(f"{self.url} runs without LoRA: it answers with the base model")
                await self._say(model, HELLO, lora, timeout_s)
        except RefusedCommand as refusal:
            self._adapters.refused(name)
            raise RefusedCommand(f"adapter {name}: {refusal}") from refusal
        self._adapters.accept(name, path)

    async def pin_adapter(self, name: str, *, timeout_s: float | None = None) -> None:
        """TensorRT-LLM has no call for it."""
        del timeout_s
        raise RefusedCommand(f"adapter {name}: TensorRT-LLM cannot pin an adapter by a call")

    async def unload_adapter(self, name: str, *, timeout_s: float | None = None) -> None:
        """Nothing is sent: there is no call. Stoker's requests name it no more; it leaves its slot when others come."""
        del timeout_s
        self._adapters.drop(name)

    async def adapters(self) -> tuple[LoadedAdapter, ...]:
        """Those that this object has loaded since the engine began. What others have sent is not told."""
        return self._adapters.listed((await self.capabilities()).models[0])

    async def is_sleeping(self) -> bool:
        """TensorRT-LLM cannot be asked."""
        return False

    async def wake(self, *, timeout_s: float | None = None) -> None:
        """Never sent: /resume_memory brings back what was released by tags that only its caller knows."""
        del timeout_s
        raise RefusedCommand(f"{self.url}: TensorRT-LLM cannot be woken by a call that is safe while it is awake")

    async def metrics(self) -> EngineMetrics:
        """GET /prometheus/metrics, or GET /metrics where the engine was started without `return_perf_metrics`; and GET
        /health, since the page outlives the engine behind it."""
        health, page = await asyncio.gather(
            self._http.call("GET", "/health"), self._http.call("GET", "/prometheus/metrics")
        )
        self._http.check(health, "/health")
        if is_switched_off(page):
            told = await self._iterations()
        else:
            self._http.check(page, "/prometheus/metrics")
            told = self._parsed("/prometheus/metrics", page.text, lambda text: parse_metrics(text, self._block_tokens))
        self._block_tokens = told.block_tokens
        return told

    async def _iterations(self) -> EngineMetrics:
        """Each is told once, to whoever asks first; after a while without a request there is none."""
        answer = await self._http.call("GET", "/metrics")
        self._http.check(answer, "/metrics")
        metrics_of("tensorrt_llm", self.url, answer.text)
        told = self._http.shaped(Iterations, answer, "/metrics")
        if told:
            self._iteration = told[-1]
        return from_iteration(self._iteration, not told, self._block_tokens)

    async def kv_events(self) -> AsyncGenerator[KvEvent, None]:
        """None; see `capabilities`."""
        followed: tuple[KvEvent, ...] = ()
        for event in followed:
            yield event

    async def reset_prefix_cache(self) -> bool:
        """TensorRT-LLM has no call for it."""
        raise RefusedCommand(f"{self.url}: TensorRT-LLM cannot be told to forget its prefixes")

    async def _accepted(
        self, model: str, adapter: str | None = None, salt: Salt | None = None, priority: int | None = None
    ) -> dict[str, Any]:
        """The fields of such a request, if the engine does with it what is meant."""
        models = (await self.capabilities()).models
        if model not in models:  # it takes any name
            raise RefusedCommand(f"The model `{model}` does not exist. Served: {', '.join(models)}.")
        if salt is not None and not salt.well_formed:
            raise RefusedCommand("a cache salt has 1 to 128 characters without '@', '/', '\\' or NUL")
        lora = None if adapter is None else self._adapters.request_of(adapter)
        return addressed(model, lora, salt, priority if self._takes_priority else None)

    async def _heeded(self, model: str, lora: Mapping[str, Any], timeout_s: float | None) -> bool:
        """Whether it uses adapters; tried with the first one of an engine's life."""
        async with self._trying:
            if self._heeds_adapters is None:

                async def ask(text: str, adapter: Mapping[str, Any] | None) -> Warmed:
                    return await self._say(model, text, adapter, timeout_s)

                self._heeds_adapters = await heeds_adapter(ask, lora, self._block_tokens, self.url)
            return self._heeds_adapters
