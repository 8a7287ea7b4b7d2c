"""SGLang's routes over a simulated replica."""

from __future__ import annotations

from array import array
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from stoker.simulator.connection import while_connected
from stoker.simulator.engine import SimulatedEngine
from stoker.simulator.replies import decoded, json_reply
from stoker.simulator.sglang import answers, errors
from stoker.simulator.sglang.adapters import AdapterDesk
from stoker.simulator.sglang.bodies import (
    AbortBody,
    Asking,
    ChatBody,
    CompletionBody,
    LoadBody,
    NativeBody,
    TokenizeBody,
    UnloadBody,
)
from stoker.simulator.sglang.exposition import Exposition
from stoker.simulator.sglang.generation import work_of
from stoker.simulator.tokenizer import ANSWER_WORDS
from stoker.simulator.work import AdapterFault, QueueFull, Work

DISCONNECT_NOTICED_S = 4.0
"""How long a request goes on after its client went away (managers/tokenizer_manager.py)."""


class SglangApi:
    """The route handlers of one replica."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self.engine = engine
        self.exposition = Exposition(engine)
        self.desk = AdapterDesk(engine)
        self._in_flight: dict[str, Work] = {}

    @property
    def routes(self) -> list[Route]:
        """All of them."""
        get = {
            "/health": self.health,
            "/ready": self.health,
            "/health_generate": self.health,
            "/model_info": self.model_info,
            "/server_info": self.server_info,
            "/v1/models": self.models,
            "/v1/loads": self.loads,
            "/metrics": self.metrics,
        }
        post = {
            "/generate": self.generate,
            "/v1/completions": self.completions,
            "/v1/chat/completions": self.chat,
            "/v1/tokenize": self.tokenize,
            "/tokenize": self.tokenize,
            "/load_lora_adapter": self.load_adapter,
            "/unload_lora_adapter": self.unload_adapter,
            "/abort_request": self.abort,
        }
        routes = [Route(path, handler, methods=["POST"]) for path, handler in post.items()]
        routes += [Route(path, handler, methods=["GET"]) for path, handler in get.items()]
        return [*routes, Route("/flush_cache", self.flush, methods=["GET", "POST"])]

    async def health(self, _request: Request) -> Response:
        """GET /health, /ready, /health_generate: 200 as long as the process lives."""
        return Response()

    async def model_info(self, _request: Request) -> Response:
        """GET /model_info."""
        path = f"/models/{self.engine.config.model}"
        return json_reply({"model_path": path, "tokenizer_path": path, "is_generation": True})

    async def server_info(self, _request: Request) -> Response:
        """GET /server_info."""
        return json_reply(answers.server_info(self.engine.config, self.engine.publisher))

    async def models(self, _request: Request) -> Response:
        """GET /v1/models."""
        return json_reply(answers.models(self.engine.config, list(self.engine.adapters.names.values())))

    async def loads(self, _request: Request) -> Response:
        """GET /v1/loads."""
        return json_reply(self.exposition.loads())

    async def metrics(self, _request: Request) -> Response:
        """GET /metrics."""
        return Response(self.exposition.text(), media_type="text/plain; version=1.0.0; charset=utf-8")

    async def generate(self, request: Request) -> Response:
        """POST /generate."""
        body = await decoded(request, NativeBody, errors.malformed)
        return json_reply(answers.generation(*await self._answered(request, body)))

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        body = await decoded(request, CompletionBody, errors.malformed)
        return json_reply(answers.completion(*await self._answered(request, body), body.model, self.engine.config))

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        body = await decoded(request, ChatBody, errors.malformed)
        return json_reply(answers.chat(*await self._answered(request, body), body.model, self.engine.config))

    async def _answered(self, request: Request, body: Asking) -> tuple[Work, str]:
        work = await work_of(self.engine, self.desk, body)
        if work.request_id in self._in_flight:
            raise errors.native(f"Duplicate request ID detected: {work.request_id}")
        self._in_flight[work.request_id] = work
        try:
            return work, await while_connected(request, self._text(work), DISCONNECT_NOTICED_S)
        except QueueFull as full:
            raise errors.queue_full() from full
        finally:
            del self._in_flight[work.request_id]

    async def _text(self, work: Work) -> str:
        async with self.engine.request(work) as numbers:
            return "".join([ANSWER_WORDS[number] async for number in numbers])

    async def abort(self, request: Request) -> Response:
        """POST /abort_request: those whose id begins with the one that is named. They end with their next step."""
        body = await decoded(request, AbortBody, errors.malformed)
        for rid, work in self._in_flight.items():
            if body.abort_all or rid.startswith(body.rid):
                work.aborted = True
                work.admitted.set()
        return Response()

    async def tokenize(self, request: Request) -> Response:
        """POST /v1/tokenize; of messages with the opening of an answer, always."""
        body = await decoded(request, TokenizeBody, errors.malformed)
        if (body.prompt is None) == (body.messages is None):
            raise errors.malformed("Exactly one of 'prompt' or 'messages' must be provided.")
        tokenizer = self.engine.tokenizer
        if body.messages is None:
            packed = tokenizer.encode(body.prompt or "")
        else:
            messages = ((message.role, message.text) for message in body.messages)
            packed = tokenizer.chat(messages, body.tools or [], opening=True)
        ids = array("I")
        ids.frombytes(packed)
        limit = self.engine.config.context_tokens
        return json_reply({"tokens": ids.tolist(), "count": len(ids), "max_model_len": limit})

    async def load_adapter(self, request: Request) -> Response:
        """POST /load_lora_adapter."""
        body = await decoded(request, LoadBody, errors.malformed)
        try:
            await self.desk.load(body.lora_name, body.lora_path, body.pinned)
        except AdapterFault as fault:
            raise errors.adapter(str(fault), self.desk.loaded) from fault
        return json_reply(self._updated())

    async def unload_adapter(self, request: Request) -> Response:
        """POST /unload_lora_adapter."""
        body = await decoded(request, UnloadBody, errors.malformed)
        try:
            self.desk.unload(body.lora_name)
        except AdapterFault as fault:
            raise errors.adapter(str(fault), self.desk.loaded) from fault
        return json_reply(self._updated())

    def _updated(self) -> dict[str, Any]:
        return {"success": True, "error_message": None, "loaded_adapters": self.desk.loaded}

    async def flush(self, _request: Request) -> Response:
        """GET or POST /flush_cache: 400 while requests wait or run."""
        if self.engine.in_flight or not self.engine.reset_prefix_cache():
            return PlainTextResponse("Flush cache failed.\n", 400)
        return PlainTextResponse("Cache flushed.\n")
