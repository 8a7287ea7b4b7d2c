"""vLLM's routes over a simulated replica."""

from __future__ import annotations

from array import array
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from stoker.simulator import answers, errors
from stoker.simulator.bodies import ChatBody, CompletionBody, LoadBody, TokenizeBody, UnloadBody
from stoker.simulator.connection import EventStream, while_connected
from stoker.simulator.engine import SimulatedEngine
from stoker.simulator.exposition import Exposition
from stoker.simulator.generation import Generating, resolve_model
from stoker.simulator.replies import decoded, json_reply
from stoker.simulator.work import AdapterFault

_MODES = ("abort", "wait", "keep")


class VllmApi:
    """The route handlers of one replica."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self.engine = engine
        self.exposition = Exposition(engine)

    @property
    def routes(self) -> list[Route]:
        """All of them."""
        get = {
            "/health": self.health,
            "/version": self.version,
            "/v1/models": self.models,
            "/metrics": self.metrics,
            "/load": self.load,
            "/kv_event_sources": self.kv_event_sources,
            "/is_sleeping": self.is_sleeping,
        }
        post = {
            "/v1/completions": self.completions,
            "/v1/chat/completions": self.chat,
            "/tokenize": self.tokenize,
            "/v1/load_lora_adapter": self.load_adapter,
            "/v1/unload_lora_adapter": self.unload_adapter,
            "/sleep": self.sleep,
            "/wake_up": self.wake_up,
            "/reset_prefix_cache": self.reset_prefix_cache,
        }
        routes = [Route(path, handler, methods=["POST"]) for path, handler in post.items()]
        return routes + [Route(path, handler, methods=["GET"]) for path, handler in get.items()]

    async def health(self, _request: Request) -> Response:
        """GET /health: 200 as long as the process lives, asleep or not."""
        return Response()

    async def version(self, _request: Request) -> Response:
        """GET /version."""
        return json_reply({"version": answers.VERSION})

    async def models(self, _request: Request) -> Response:
        """GET /v1/models."""
        return json_reply(answers.models(self.engine.config, self.engine.adapters.names.values()))

    async def metrics(self, _request: Request) -> Response:
        """GET /metrics."""
        return Response(self.exposition.text(), media_type="text/plain; version=1.0.0; charset=utf-8")

    async def load(self, _request: Request) -> Response:
        """GET /load: requests on the generating routes right now."""
        return json_reply({"server_load": self.engine.in_flight})

    async def kv_event_sources(self, _request: Request) -> Response:
        """GET /kv_event_sources: one entry a data-parallel rank; this replica is rank 0."""
        publisher = self.engine.publisher
        return json_reply({"0": publisher.source()} if publisher else {})

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        return await self._generate(request, await decoded(request, CompletionBody))

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        return await self._generate(request, await decoded(request, ChatBody))

    async def _resolve(self, model: str | None) -> None:
        """Loads an unknown adapter that lies in the cache under its name, as vLLM's resolver plugins do."""
        engine, cache = self.engine, self.engine.config.lora_cache
        if not (cache and model) or model == engine.config.model or model in engine.adapters.names:
            return
        path = Path(cache) / model
        if not path.is_dir():
            return
        try:
            await engine.load_adapter(model, str(path))
        except AdapterFault as fault:
            told = f"LoRA adapter '{model}' was found but could not be loaded."
            raise errors.bad_request(told, "model", model) from fault

    async def _generate(self, request: Request, body: CompletionBody | ChatBody) -> Response:
        await self._resolve(body.model)
        generating = Generating(self.engine, body, request.headers.get("x-request-id"))
        if body.stream:
            chunks = generating.stream()
            # Runs up to the engine's yes, so that a full queue is a 503 and not a broken stream.
            await anext(chunks)
            return EventStream(chunks)
        return Response(await while_connected(request, generating.whole()), media_type="application/json")

    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize."""
        body = await decoded(request, TokenizeBody)
        resolve_model(self.engine, body.model or self.engine.config.model)
        if body.messages is not None:
            messages = ((message.role, message.text) for message in body.messages)
            packed = self.engine.tokenizer.chat(messages, body.tools or [], body.add_generation_prompt)
        else:
            packed = self.engine.tokenizer.encode(body.prompt or "")
        ids = array("I")
        ids.frombytes(packed)
        limit = self.engine.config.context_tokens
        return json_reply({"count": len(ids), "max_model_len": limit, "tokens": ids.tolist(), "token_strs": None})

    async def load_adapter(self, request: Request) -> Response:
        """POST /v1/load_lora_adapter."""
        if not self.engine.config.runtime_adapters:
            raise errors.switched_off()
        body = await decoded(request, LoadBody)
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
        name = (await decoded(request, UnloadBody)).lora_name
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
        return json_reply({"status": "sleeping", "level": int(level)})

    async def wake_up(self, request: Request) -> Response:
        """POST /wake_up?tags=."""
        self._dev_only()
        self.engine.wake_up()
        return json_reply({"status": "awake", "tags": request.query_params.getlist("tags") or None})

    async def is_sleeping(self, _request: Request) -> Response:
        """GET /is_sleeping."""
        self._dev_only()
        return json_reply({"is_sleeping": self.engine.sleep_level is not None})

    async def reset_prefix_cache(self, _request: Request) -> Response:
        """POST /reset_prefix_cache."""
        self._dev_only()
        return json_reply({"success": self.engine.reset_prefix_cache()})

    def _dev_only(self) -> None:
        if not self.engine.config.dev_mode:
            raise errors.switched_off()
