"""TensorRT-LLM's routes over a simulated replica."""

from __future__ import annotations

from array import array

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stoker.simulator.connection import while_connected
from stoker.simulator.engine import SimulatedEngine
from stoker.simulator.replies import decoded, json_reply
from stoker.simulator.tensorrt import VERSION, answers, errors
from stoker.simulator.tensorrt.adapters import AdapterDesk
from stoker.simulator.tensorrt.bodies import ChatBody, CompletionBody, TokenizeBody
from stoker.simulator.tensorrt.exposition import Exposition
from stoker.simulator.tensorrt.generation import work_of
from stoker.simulator.tokenizer import ANSWER_WORDS
from stoker.simulator.work import Work

DISCONNECT_NOTICED_S = 1.0
"""How long a request goes on after its client went away (`await_disconnected` in serve/openai_server.py)."""


class TensorrtApi:
    """The route handlers of one replica."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self.engine = engine
        self.exposition = Exposition(engine)
        self.desk = AdapterDesk(engine)

    @property
    def routes(self) -> list[Route]:
        """All of them."""
        get = {
            "/health": self.health,
            "/version": self.version,
            "/v1/models": self.models,
            "/server_info": self.server_info,
            "/metrics": self.iterations,
            "/prometheus/metrics": self.metrics,
            "/openapi.json": self.description,
        }
        post = {
            "/v1/completions": self.completions,
            "/v1/chat/completions": self.chat,
            "/_internal/tokenize": self.tokenize,
        }
        routes = [Route(path, handler, methods=["POST"]) for path, handler in post.items()]
        return routes + [Route(path, handler, methods=["GET"]) for path, handler in get.items()]

    async def health(self, _request: Request) -> Response:
        """GET /health: 200 as long as the process lives."""
        return Response()

    async def version(self, _request: Request) -> Response:
        """GET /version."""
        return json_reply({"version": VERSION})

    async def models(self, _request: Request) -> Response:
        """GET /v1/models."""
        return json_reply(answers.models(self.engine.config))

    async def server_info(self, _request: Request) -> Response:
        """GET /server_info."""
        return json_reply(answers.server_info(self.engine.config))

    async def description(self, _request: Request) -> Response:
        """GET /openapi.json."""
        return json_reply(answers.description())

    async def iterations(self, _request: Request) -> Response:
        """GET /metrics."""
        return json_reply(self.exposition.iterations())

    async def metrics(self, _request: Request) -> Response:
        """GET /prometheus/metrics, as with `return_perf_metrics`."""
        return Response(self.exposition.text(), media_type="text/plain; version=1.0.0; charset=utf-8")

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        body = await decoded(request, CompletionBody, errors.malformed)
        return json_reply(answers.completion(*await self._answered(request, body), body.model))

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        body = await decoded(request, ChatBody, errors.malformed)
        return json_reply(answers.chat(*await self._answered(request, body), body.model))

    async def _answered(self, request: Request, body: CompletionBody | ChatBody) -> tuple[Work, str]:
        work = await work_of(self.engine, self.desk, body)
        return work, await while_connected(request, self._text(work), DISCONNECT_NOTICED_S)

    async def _text(self, work: Work) -> str:
        async with self.engine.request(work) as numbers:
            return "".join([ANSWER_WORDS[number] async for number in numbers])

    async def tokenize(self, request: Request) -> Response:
        """POST /_internal/tokenize."""
        body = await decoded(request, TokenizeBody, errors.malformed)
        ids = array("I")
        ids.frombytes(self.engine.tokenizer.encode(body.prompt))
        return json_reply({"count": len(ids), "tokens": ids.tolist()})
