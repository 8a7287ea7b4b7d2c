"""SGLang over HTTP. Written against the sources of 0.5.23 and never run against a real one: see docs/engines.md.

Files of sgl-project/sglang that facts come from are named without their prefix `python/sglang/srt/`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar, Unpack
from urllib.parse import urlsplit

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
from connectors.engines.http import Unanswered, is_switched_off
from connectors.engines.http_engine import Client, HttpEngine
from connectors.engines.kv_events import KvEventStream, merge
from connectors.engines.openai_api import (
    HELLO,
    ChatCompletion,
    Completion,
    ModelList,
    Tokenized,
    chat_body,
    generated,
    is_loaded,
    metrics_of,
    warmed,
    warmed_as,
)
from connectors.engines.sglang_answers import AdapterUpdate, Generation, Loads, ServerInfo
from connectors.engines.sglang_metrics import from_loads, parse_metrics
from connectors.engines.sglang_requests import addressed, common_start, continued, events_tell_salts
from schemas.errors import RefusedCommand, TransientFault

T = TypeVar("T")

ABORT_TIMEOUT_S = 2.0


class SglangEngine(HttpEngine):
    """One SGLang replica; see `connectors.engines.base.Engine` for the contract.

    Prompts without a salt go to its native route, which always tells what was cached. Salted ones go to
    `/v1/completions`, whose `cache_salt` is the field that a gateway's requests carry: so both share one tree.

    Args:
        url, client: of its HTTP API, see `HttpEngine`.
    """

    def __init__(self, url: str, **client: Unpack[Client]) -> None:
        super().__init__(url, **client)
        self._probed: tuple[Capabilities, ServerInfo] | None = None
        self._probing = asyncio.Lock()
        self._pinned: set[str] = set()
        self._aborts: set[asyncio.Task[None]] = set()

    def _forget(self) -> None:
        self._probed = None
        self._pinned.clear()

    async def capabilities(self) -> Capabilities:
        """Ask once in an engine's life: models and start-up arguments. Costs no token."""
        return (await self._know())[0]

    async def _know(self) -> tuple[Capabilities, ServerInfo]:
        async with self._probing:
            if self._probed is None:
                self._probed = await self._probe()
            return self._probed

    async def _probe(self) -> tuple[Capabilities, ServerInfo]:
        served = await self._http.ask(ModelList, "GET", "/v1/models")
        models = served.base_models("sglang", self.url)
        info = await self._http.ask(ServerInfo, "GET", "/server_info")
        lengths = [length for length in (served.context_tokens, info.max_req_input_len) if length]
        adapters = bool(info.enable_lora) and info.dp_size == 1  # managers/tokenizer_control_mixin.py
        # Its events never name an adapter (mem_cache/events.py): an adapter's blocks would pass for the base model's.
        follow = not info.enable_lora and events_tell_salts(info.version)
        able = Capabilities(
            engine="sglang",
            version=info.version,
            models=models,
            runtime_adapters=adapters,
            adapter_pins=adapters,
            usage_details=info.enable_cache_report,
            sleep=False,  # it gives memory back by a call, and cannot be asked whether it did
            block_tokens=info.page_size,
            num_blocks=None if info.max_total_num_tokens is None else info.max_total_num_tokens // info.page_size,
            max_prompt_tokens=min(lengths) - 1 if lengths else None,
            event_sources=info.event_sources(urlsplit(self.url).hostname or "127.0.0.1") if follow else (),
        )
        return able, info

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
        """Their tokens as `tokenize` gives them, then `warm_tokens`."""
        begun = asyncio.get_running_loop().time()
        ids = await self.tokenize(model, Messages(messages, tools or ()), timeout_s=timeout_s)
        if timeout_s is not None:
            timeout_s = max(0.0, timeout_s - (asyncio.get_running_loop().time() - begun))
        return await self.warm_tokens(
            model, ids, adapter=adapter, salt=salt, request_id=request_id, priority=priority, timeout_s=timeout_s
        )

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
        """One token by /generate, or by /v1/completions where there is a salt; created tokens are not told."""
        info = await self._accepting(model, adapter, salt)
        if info.disable_radix_cache:
            raise RefusedCommand(f"{self.url} keeps no prefixes: it was started with --disable-radix-cache")
        if not tokens:
            raise RefusedCommand("a prompt has at least one token")
        body = addressed(info, adapter, salt, request_id, priority)
        if salt is None:
            body["text" if isinstance(tokens, str) else "input_ids"] = tokens
            body["sampling_params"] = {"max_new_tokens": 1, "temperature": 0}
            found = (await self._request(Generation, "/generate", body, timeout_s)).meta_info
            return Warmed(found.prompt_tokens, found.cached_tokens, None)
        body |= {"model": model, "prompt": tokens, "max_tokens": 1, "temperature": 0}
        return warmed(await self._request(Completion, "/v1/completions", body, timeout_s))

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
        info = await self._accepting(model, adapter, salt)
        body = chat_body(messages, tools) | addressed(info, adapter, salt, request_id, priority)
        body |= {"model": model, "max_tokens": max_tokens, "temperature": 0}
        return generated(await self._request(ChatCompletion, "/v1/chat/completions", body, timeout_s))

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
        """The same request as a warm-up: SGLang has no look-up that leaves the cache alone."""
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
        """POST /generate, as short as it can be."""
        able, info = await self._know()
        adapter = None if model is None or model in able.models else model
        body = addressed(info, adapter, None, request_id, None)
        body |= {"text": HELLO, "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
        await self._request(Generation, "/generate", body, timeout_s)

    async def tokenize(self, model: str, prompt: Messages | Text, *, timeout_s: float | None = None) -> tuple[int, ...]:
        """POST /v1/tokenize; of messages, the tokens that every longer chat begins with.

        Its chat routes always add the opening of an answer (entrypoints/openai/serving_chat.py), which a longer chat
        has only after a user's turn. So the chat is rendered with two different continuations, and what they share is
        taken.
        """
        await self._accepting(model, None, None)
        match prompt:
            case Text(text):
                return await self._tokens({"model": model, "prompt": text}, timeout_s)
            case Messages(messages, tools):
                chats = [chat_body(chat, tools) | {"model": model} for chat in continued(messages)]
                return common_start(*await asyncio.gather(*(self._tokens(chat, timeout_s) for chat in chats)))

    async def _tokens(self, body: Mapping[str, Any], timeout_s: float | None) -> tuple[int, ...]:
        return (await self._http.ask(Tokenized, "POST", "/v1/tokenize", body, timeout_s)).tokens

    async def load_adapter(self, name: str, path: str, *, pinned: bool = False, timeout_s: float | None = None) -> None:
        """POST /load_lora_adapter. It answers every failure alike, so a missing adapter is not told from a bad one."""
        if is_loaded(await self.adapters(), name, path):
            return
        body = {"lora_name": name, "lora_path": path, "pinned": pinned}
        answer = await self._http.call("POST", "/load_lora_adapter", body, timeout_s)
        if answer.status_code == httpx.codes.BAD_REQUEST:
            if is_loaded(await self.adapters(), name, path):
                return  # an earlier call, given up on this side, came to its end meanwhile
            told = self._http.shaped(AdapterUpdate, answer, "/load_lora_adapter").error_message
            raise RefusedCommand(f"adapter {name}: {told or 'refused without a reason'}"[:500])
        self._http.check(answer, "/load_lora_adapter")
        if pinned:
            self._pinned.add(name)

    async def pin_adapter(self, name: str, *, timeout_s: float | None = None) -> None:
        """Nothing is left to do for what `load_adapter` loaded with a pin; SGLang has no call for others."""
        del timeout_s
        if name not in self._pinned:
            raise RefusedCommand(
                f"adapter {name}: SGLang pins only while it loads, and it is not known whether this one was loaded so; "
                "unload it first"
            )

    async def unload_adapter(self, name: str, *, timeout_s: float | None = None) -> None:
        """POST /unload_lora_adapter, which waits for requests in flight with the adapter."""
        answer = await self._http.call("POST", "/unload_lora_adapter", {"lora_name": name}, timeout_s)
        if answer.status_code == httpx.codes.BAD_REQUEST:
            if name in await self._names():
                raise TransientFault(f"{self.url}/unload_lora_adapter has not unloaded {name}: it is still listed")
        else:
            self._http.check(answer, "/unload_lora_adapter")
        self._pinned.discard(name)

    async def adapters(self) -> tuple[LoadedAdapter, ...]:
        """GET /v1/models, cards with a parent."""
        return (await self._http.ask(ModelList, "GET", "/v1/models")).adapters

    async def is_sleeping(self) -> bool:
        """SGLang cannot be asked."""
        return False

    async def wake(self, *, timeout_s: float | None = None) -> None:
        """Never sent: /resume_memory_occupation brings back what was released by tags that only its caller knows."""
        del timeout_s
        raise RefusedCommand(f"{self.url}: SGLang cannot be woken by a call that is safe while it is awake")

    async def metrics(self) -> EngineMetrics:
        """GET /metrics, or GET /v1/loads where the engine was started without --enable-metrics."""
        able, _info = await self._know()
        answer = await self._http.call("GET", "/metrics")
        if is_switched_off(answer):
            told = await self._http.ask(Loads, "GET", "/v1/loads?include=core")
            return from_loads(told.loads, able.block_tokens, able.num_blocks)
        self._http.check(answer, "/metrics")
        return self._parsed(
            "/metrics",
            metrics_of("sglang", self.url, answer.text),
            lambda page: parse_metrics(page, able.block_tokens, able.num_blocks),
        )

    async def kv_events(self) -> AsyncGenerator[KvEvent, None]:
        """All ranks' events, each beginning with its replay buffer."""
        sources = (await self.capabilities()).event_sources
        async with aclosing(merge([KvEventStream(source) for source in sources])) as merged:
            async for event in merged:
                yield event

    async def reset_prefix_cache(self) -> bool:
        """POST /flush_cache, which does nothing while requests wait or run."""
        answer = await self._http.call("POST", "/flush_cache")
        if answer.status_code == httpx.codes.BAD_REQUEST:
            return False
        self._http.check(answer, "/flush_cache")
        return True

    async def close(self) -> None:
        """Let aborts go out, and close all connections."""
        await asyncio.gather(*self._aborts, return_exceptions=True)
        await super().close()

    async def _accepting(self, model: str, adapter: str | None, salt: Salt | None) -> ServerInfo:
        """The engine's arguments, if it takes such a request without doing something else than was meant."""
        able, info = await self._know()
        if model not in able.models:  # its native route has no model, and its OpenAI routes take any name
            raise RefusedCommand(f"The model `{model}` does not exist. Served: {', '.join(able.models)}.")
        if salt is not None and not salt.well_formed:
            raise RefusedCommand("a cache salt has 1 to 128 characters without '@', '/', '\\' or NUL")
        if salt is not None and info.enable_lmcache:
            raise RefusedCommand(f"{self.url} runs with LMCache, which drops cache salts (sglang #37160)")
        if adapter is not None and adapter not in await self._names():
            # One that was loaded once would come back by itself, whoever unloaded it (sglang #11526).
            raise RefusedCommand(f"adapter {adapter} is not loaded at {self.url}")
        return info

    async def _names(self) -> frozenset[str]:
        return frozenset(adapter.name for adapter in await self.adapters())

    async def _request(self, shape: type[T], path: str, body: Mapping[str, Any], timeout_s: float | None) -> T:
        """A request that is aborted when it is given up: a closed connection is noticed within 4 s only
        (`_wait_one_response` in managers/tokenizer_manager.py)."""
        try:
            return await self._http.ask(shape, "POST", path, body, timeout_s)
        except (Unanswered, asyncio.CancelledError):
            task = asyncio.create_task(self._abort(body["rid"]))
            self._aborts.add(task)
            task.add_done_callback(self._aborts.discard)
            raise

    async def _abort(self, rid: str) -> None:
        with contextlib.suppress(TransientFault):
            await self._http.call("POST", "/abort_request", {"rid": rid}, ABORT_TIMEOUT_S)
