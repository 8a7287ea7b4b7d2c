"""vLLM over HTTP. Written against 0.32.0; what it does not have is said in `capabilities`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Unpack
from urllib.parse import urlsplit

import httpx

from connectors.engines.base import (
    TOP_PRIORITY,
    Capabilities,
    ChatMessage,
    EngineMetrics,
    EventSource,
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
from connectors.engines.http import is_switched_off, reason
from connectors.engines.http_engine import Client, HttpEngine
from connectors.engines.kv_events import KvEventStream, merge
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
from connectors.engines.vllm_answers import KvEventSources, Sleeping, Success
from connectors.engines.vllm_metrics import parse_metrics
from schemas.errors import RefusedCommand


class VllmEngine(HttpEngine):
    """One vLLM replica; see `connectors.engines.base.Engine` for the contract.

    Args:
        url, client: of its HTTP API, see `HttpEngine`.
        event_sources: endpoints of the KV events where `/kv_event_sources` cannot be used; hosts as to be dialled.
    """

    def __init__(
        self, url: str, *, event_sources: Sequence[EventSource] | None = None, **client: Unpack[Client]
    ) -> None:
        super().__init__(url, **client)
        self._event_sources = None if event_sources is None else tuple(event_sources)
        self._probed: Capabilities | None = None
        self._probing = asyncio.Lock()

    def _forget(self) -> None:
        self._probed = None

    async def capabilities(self) -> Capabilities:
        """Probe once in an engine's life: models, geometry, KV events, adapters, development mode, usage details."""
        async with self._probing:
            if self._probed is None:
                self._probed = await self._probe()
        return self._probed

    async def _probe(self) -> Capabilities:
        served = await self._http.ask(ModelList, "GET", "/v1/models")
        models, context = served.base_models("vllm", self.url), served.context_tokens
        version = (await self._http.ask(Version, "GET", "/version")).version
        gauges = await self.metrics()
        hello = {"model": models[0], "prompt": HELLO, "max_tokens": 1}
        probe = await self._http.ask(Completion, "POST", "/v1/completions", hello)
        return Capabilities(
            engine="vllm",
            version=version,
            models=models,
            # An empty body is refused where the route exists, and loads nothing.
            runtime_adapters=not mixes_adapters_up(version)
            and await self._http.exists("POST", "/v1/load_lora_adapter", {}),
            adapter_pins=False,  # no call for it up to 0.33
            usage_details=probe.details.cached_tokens is not None,
            sleep=await self._http.exists("GET", "/is_sleeping"),
            block_tokens=gauges.block_tokens,
            num_blocks=gauges.blocks_total,
            max_prompt_tokens=None if context is None else context - 1,
            event_sources=await self._sources(),
        )

    async def _sources(self) -> tuple[EventSource, ...]:
        if self._event_sources is not None:
            return self._event_sources
        try:
            told = await self._http.ask(KvEventSources, "GET", "/kv_event_sources")
        except RefusedCommand:
            return ()
        host = urlsplit(self.url).hostname or "127.0.0.1"
        return tuple(
            EventSource(
                rank=rank,
                endpoint=_dial(source.endpoint, host),
                replay_endpoint=_dial(source.replay_endpoint, host) if source.replay_endpoint else None,
                topic=source.topic,
            )
            for rank, source in sorted(told.items())
            if source.enable_kv_cache_events and source.endpoint
        )

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
        """One-token chat completion; vLLM tells cached and created tokens here."""
        body = chat_body(messages, tools) | _request(self._named(model, adapter), salt, request_id, priority)
        body["add_generation_prompt"] = False
        return warmed(await self._http.ask(Completion, "POST", "/v1/chat/completions", body, timeout_s))

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
        body = chat_body(messages, tools) | _request(self._named(model, adapter), salt, request_id, priority)
        body["max_tokens"] = max_tokens
        return generated(await self._http.ask(ChatCompletion, "POST", "/v1/chat/completions", body, timeout_s))

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
        """One-token text completion; vLLM tells cached tokens here, but not created ones."""
        body: dict[str, Any] = {"prompt": tokens if isinstance(tokens, str) else list(tokens)}
        body |= _request(self._named(model, adapter), salt, request_id, priority)
        return warmed(await self._http.ask(Completion, "POST", "/v1/completions", body, timeout_s))

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
        """The same request as a warm-up: vLLM has no look-up that leaves the cache alone."""
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

    def _named(self, model: str, adapter: str | None) -> str:
        """What a request calls the model that it wants."""
        return adapter or model

    async def probe(self, model: str | None, *, request_id: str, timeout_s: float | None = None) -> None:
        """POST /v1/completions, as short as it can be. Without a model vLLM takes its base model."""
        body = {"prompt": HELLO, "max_tokens": 1, "request_id": request_id}
        body |= {} if model is None else {"model": model}
        self._http.check(await self._http.call("POST", "/v1/completions", body, timeout_s), "/v1/completions")

    async def tokenize(self, model: str, prompt: Messages | Text, *, timeout_s: float | None = None) -> tuple[int, ...]:
        """POST /tokenize, with the template that a warm-up uses."""
        body: dict[str, Any] = {"model": model}
        match prompt:
            case Messages(messages, tools):
                body |= {"messages": list(messages), "add_generation_prompt": False}
                if tools:
                    body["tools"] = list(tools)
            case Text(text):
                body["prompt"] = text
        return (await self._http.ask(Tokenized, "POST", "/tokenize", body, timeout_s)).tokens

    async def load_adapter(self, name: str, path: str, *, pinned: bool = False, timeout_s: float | None = None) -> None:
        """POST /v1/load_lora_adapter, never in place (vLLM #33791)."""
        del pinned  # `pin_adapter` says no
        if is_loaded(await self.adapters(), name, path):
            return
        answer = await self._http.call(
            "POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path}, timeout_s
        )
        if answer.status_code == httpx.codes.NOT_FOUND and not is_switched_off(answer):
            raise RefusedCommand(f"adapter {name}: {reason(answer)}", "adapter_missing")
        if answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR:
            # A rank above the limit, bad weights, no memory: vLLM has one status for all of them, none of them passes.
            raise RefusedCommand(f"adapter {name}: {reason(answer)}")
        if answer.status_code == httpx.codes.BAD_REQUEST and is_loaded(await self.adapters(), name, path):
            return  # an earlier call, given up on this side, came to its end meanwhile
        self._http.check(answer, "/v1/load_lora_adapter")

    async def pin_adapter(self, name: str, *, timeout_s: float | None = None) -> None:
        """vLLM has no call for it."""
        del timeout_s
        raise RefusedCommand(f"adapter {name}: vLLM cannot pin an adapter by a call")

    async def unload_adapter(self, name: str, *, timeout_s: float | None = None) -> None:
        """POST /v1/unload_lora_adapter."""
        answer = await self._http.call("POST", "/v1/unload_lora_adapter", {"lora_name": name}, timeout_s)
        if answer.status_code == httpx.codes.NOT_FOUND and not is_switched_off(answer):
            return
        self._http.check(answer, "/v1/unload_lora_adapter")

    async def adapters(self) -> tuple[LoadedAdapter, ...]:
        """GET /v1/models, cards with a parent."""
        return (await self._http.ask(ModelList, "GET", "/v1/models")).adapters

    async def is_sleeping(self) -> bool:
        """GET /is_sleeping, or the gauge where that route is switched off."""
        answer = await self._http.call("GET", "/is_sleeping")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return bool((await self.metrics()).sleeping)
        self._http.check(answer, "/is_sleeping")
        return self._http.shaped(Sleeping, answer, "/is_sleeping").is_sleeping

    async def wake(self, *, timeout_s: float | None = None) -> None:
        """POST /wake_up, which answers when the weights are back."""
        self._http.check(await self._http.call("POST", "/wake_up", None, timeout_s), "/wake_up")

    async def metrics(self) -> EngineMetrics:
        """GET /metrics, the subset that Stoker uses."""
        answer = await self._http.call("GET", "/metrics")
        self._http.check(answer, "/metrics")
        return self._parsed("/metrics", metrics_of("vllm", self.url, answer.text), parse_metrics)

    async def kv_events(self) -> AsyncGenerator[KvEvent, None]:
        """All ranks' events, each beginning with its replay buffer."""
        sources = (await self.capabilities()).event_sources
        async with aclosing(merge([KvEventStream(source) for source in sources])) as merged:
            async for event in merged:
                yield event

    async def reset_prefix_cache(self) -> bool:
        """POST /reset_prefix_cache."""
        return (await self._http.ask(Success, "POST", "/reset_prefix_cache", {})).success


def mixes_adapters_up(version: str) -> bool:
    """Whether a load may make requests in flight decode with another user's adapter (vLLM #47724): seen from 0.22.1 to
    0.24.0, known to be cured in 0.32.0."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    return found is not None and (0, 22, 1) <= tuple(int(part) for part in found.groups()) < (0, 32, 0)


def _request(model: str, salt: Salt | None, request_id: str, priority: int | None) -> dict[str, Any]:
    body: dict[str, Any] = {"model": model, "max_tokens": 1, "temperature": 0, "request_id": request_id}
    if salt is not None:
        body["cache_salt"] = salt.value
    if priority is not None:
        body["priority"] = TOP_PRIORITY - priority  # vLLM runs lower values earlier
    return body


def _dial(endpoint: str, host: str) -> str:
    """An endpoint that the engine bound to a wildcard, as seen from here."""
    for wildcard in ("*", "0.0.0.0", "[::]"):
        endpoint = endpoint.replace(f"//{wildcard}:", f"//{host}:")
    return endpoint
