"""vLLM's routes over a simulated replica, and two of the simulator's own: /sim/ledger and /sim/totals."""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from stoker.simulator import answers, errors
from stoker.simulator.bodies import Body, ChatBody, CompletionBody, LoadBody, TokenizeBody, UnloadBody, parse
from stoker.simulator.connection import ClientGone, EventStream, while_connected
from stoker.simulator.engine import SimulatedEngine
from stoker.simulator.errors import ApiError
from stoker.simulator.exposition import Exposition
from stoker.simulator.generation import Generating, resolve_model
from stoker.simulator.work import AdapterFault

_MODES = ("abort", "wait", "keep")
_encode = msgspec.json.Encoder().encode


class Api:
    """The route handlers of one replica."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self.engine = engine
        self.exposition = Exposition(engine)

    async def health(self, _request: Request) -> Response:
        """GET /health: 200 as long as the process lives, asleep or not."""
        return Response()

    async def version(self, _request: Request) -> Response:
        """GET /version."""
        return _json({"version": answers.VERSION})

    async def models(self, _request: Request) -> Response:
        """GET /v1/models."""
        return _json(answers.models(self.engine.config, self.engine.adapters.names.values()))

    async def metrics(self, _request: Request) -> Response:
        """GET /metrics."""
        return Response(self.exposition.text(), media_type="text/plain; version=1.0.0; charset=utf-8")

    async def load(self, _request: Request) -> Response:
        """GET /load: requests on the generating routes right now."""
        return _json({"server_load": self.engine.in_flight})

    async def kv_event_sources(self, _request: Request) -> Response:
        """GET /kv_event_sources: one entry a data-parallel rank; this replica is rank 0."""
        publisher = self.engine.publisher
        return _json({"0": publisher.source()} if publisher else {})

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        return await self._generate(request, await _body(request, CompletionBody))

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        return await self._generate(request, await _body(request, ChatBody))

    async def _generate(self, request: Request, body: CompletionBody | ChatBody) -> Response:
        generating = Generating(self.engine, body, request.headers.get("x-request-id"))
        if body.stream:
            chunks = generating.stream()
            # Runs up to the engine's yes, so that a full queue is a 503 and not a broken stream.
            await anext(chunks)
            return EventStream(chunks)
        return Response(await while_connected(request, generating.whole()), media_type="application/json")

    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize."""
        body = await _body(request, TokenizeBody)
        resolve_model(self.engine, body.model or self.engine.config.model)
        if body.messages is not None:
            messages = ((message.role, message.text) for message in body.messages)
            packed = self.engine.tokenizer.chat(messages, body.tools or [], body.add_generation_prompt)
        else:
            packed = self.engine.tokenizer.encode(body.prompt or "")
        ids = array("I")
        ids.frombytes(packed)
        limit = self.engine.config.context_tokens
        return _json({"count": len(ids), "max_model_len": limit, "tokens": ids.tolist(), "token_strs": None})

    async def load_adapter(self, request: Request) -> Response:
        """POST /v1/load_lora_adapter."""
        if not self.engine.config.runtime_adapters:
            raise errors.switched_off()
        body = await _body(request, LoadBody)
        name = body.lora_name
        if not name or not body.lora_path:
            raise errors.adapter_input("Both 'lora_name' and 'lora_path' must be provided.")
        if name == self.engine.config.model:
            raise errors.adapter_input(f"The lora adapter '{name}' conflicts with a served base model.")
        if name in self.engine.adapters.names and not body.load_inplace:
            raise errors.adapter_input(
                f"The lora adapter '{name}' has already been loaded. If you want to load the adapter in place, set "
                "'load_inplace' to True."
            )
        try:
            await self.engine.load_adapter(name, body.lora_path)
        except AdapterFault as fault:
            raise errors.adapter_missing(str(fault)) if fault.missing else errors.internal(str(fault)) from fault
        return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    async def unload_adapter(self, request: Request) -> Response:
        """POST /v1/unload_lora_adapter: takes the name away, nothing else."""
        if not self.engine.config.runtime_adapters:
            raise errors.switched_off()
        name = (await _body(request, UnloadBody)).lora_name
        if not name:
            raise errors.adapter_input("'lora_name' needs to be provided to unload a LoRA adapter.")
        if name not in self.engine.adapters.names:
            raise errors.adapter_missing(f"The lora adapter '{name}' cannot be found.")
        self.engine.adapters.unregister(name)
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    async def sleep(self, request: Request) -> Response:
        """POST /sleep?level=0..2&mode=abort|wait|keep."""
        self._dev_only()
        level = request.query_params.get("level", "1")
        mode = request.query_params.get("mode", "abort")
        if level not in ("0", "1", "2") or mode not in _MODES:
            raise errors.malformed(f"query: level {level!r} must be 0 to 2, mode {mode!r} one of {_MODES}")
        await self.engine.sleep(int(level), mode)  # type: ignore[arg-type]
        return _json({"status": "sleeping", "level": int(level)})

    async def wake_up(self, request: Request) -> Response:
        """POST /wake_up?tags=."""
        self._dev_only()
        self.engine.wake_up()
        return _json({"status": "awake", "tags": request.query_params.getlist("tags") or None})

    async def is_sleeping(self, _request: Request) -> Response:
        """GET /is_sleeping."""
        self._dev_only()
        return _json({"is_sleeping": self.engine.sleep_level is not None})

    async def reset_prefix_cache(self, _request: Request) -> Response:
        """POST /reset_prefix_cache."""
        self._dev_only()
        return _json({"success": self.engine.reset_prefix_cache()})

    async def ledger(self, request: Request) -> Response:
        """GET /sim/ledger?request_id=: finished requests, oldest first, as far as they are remembered."""
        wanted = request.query_params.get("request_id")
        ledger = self.engine.ledger
        return _json([asdict(entry) for entry in (ledger.of(wanted) if wanted else ledger.entries)])

    async def totals(self, _request: Request) -> Response:
        """GET /sim/totals: sums since this incarnation started, and what lies where."""
        engine = self.engine
        return _json(
            {
                "name": engine.config.name,
                "incarnation": engine.incarnation,
                "started_at_ms": int(engine.started_s * 1000),
                "requests": engine.ledger.requests,
                "prompt_tokens": engine.ledger.prompt_tokens,
                "cached_tokens": engine.ledger.cached_tokens,
                "created_tokens": engine.ledger.created_tokens,
                "answer_tokens": engine.ledger.answer_tokens,
                "outcomes": dict(engine.ledger.outcomes),
                "rejections": engine.rejections,
                "running": len(engine.running),
                "waiting": len(engine.waiting),
                "blocks": {
                    "tokens": engine.config.block_tokens,
                    "usable": engine.pool.usable,
                    "held": engine.pool.held,
                    "idle": engine.pool.idle,
                    "blank": engine.pool.blank,
                    "evicted": engine.pool.evicted_total,
                },
                "adapters": {"gpu": engine.adapters.on_gpu, "cpu": engine.adapters.on_cpu},
                "memory": {
                    "total_bytes": engine.memory.total_bytes,
                    "free_bytes": engine.memory.free_bytes,
                    "largest_free_bytes": engine.memory.largest_free_bytes,
                },
            }
        )

    def _dev_only(self) -> None:
        if not self.engine.config.dev_mode:
            raise errors.switched_off()


def build_app(engine: SimulatedEngine) -> Starlette:
    """The ASGI application of one replica."""
    api = Api(engine)
    get: dict[str, Callable[[Request], Awaitable[Response]]] = {
        "/health": api.health,
        "/version": api.version,
        "/v1/models": api.models,
        "/metrics": api.metrics,
        "/load": api.load,
        "/kv_event_sources": api.kv_event_sources,
        "/is_sleeping": api.is_sleeping,
        "/sim/ledger": api.ledger,
        "/sim/totals": api.totals,
    }
    post: dict[str, Callable[[Request], Awaitable[Response]]] = {
        "/v1/completions": api.completions,
        "/v1/chat/completions": api.chat,
        "/tokenize": api.tokenize,
        "/v1/load_lora_adapter": api.load_adapter,
        "/v1/unload_lora_adapter": api.unload_adapter,
        "/sleep": api.sleep,
        "/wake_up": api.wake_up,
        "/reset_prefix_cache": api.reset_prefix_cache,
    }
    routes = [Route(path, handler, methods=["POST"]) for path, handler in post.items()]
    routes += [Route(path, handler, methods=["GET"]) for path, handler in get.items()]

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        replay = asyncio.ensure_future(engine.publisher.serve()) if engine.publisher else None
        yield
        if replay is not None and engine.publisher is not None:
            replay.cancel()
            engine.publisher.close()

    handlers: dict[Any, Any] = {ApiError: _api_error, 404: _no_route, 405: _no_route}
    handlers |= dict.fromkeys((ClientGone, ClientDisconnect), _client_gone)
    return Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)


async def _body(request: Request, kind: type[Body]) -> Body:
    media_type = request.headers.get("content-type", "").lower().partition(";")[0]
    if media_type != "application/json":
        raise errors.malformed("Unsupported Media Type: Only 'application/json' is allowed")
    return parse(await request.body(), kind)


async def _api_error(_request: Request, fault: ApiError) -> Response:
    return _json(fault.body, int(fault.status))


async def _client_gone(_request: Request, _fault: Exception) -> Response:
    return Response(status_code=499)


async def _no_route(_request: Request, fault: Any) -> Response:
    return _json({"detail": fault.detail}, fault.status_code)


def _json(body: object, status: int = 200) -> Response:
    return Response(_encode(body), status, media_type="application/json")
