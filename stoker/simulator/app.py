"""The ASGI application of one replica: the routes of its dialect, and the simulator's own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from stoker.simulator.books import Books
from stoker.simulator.config import Dialect
from stoker.simulator.connection import ClientGone
from stoker.simulator.engine import SimulatedEngine
from stoker.simulator.errors import ApiError
from stoker.simulator.replies import json_reply
from stoker.simulator.sglang.api import SglangApi
from stoker.simulator.tensorrt.api import TensorrtApi
from stoker.simulator.vllm_api import VllmApi


def build_app(engine: SimulatedEngine) -> Starlette:
    """The application, which also serves the replays of the engine's KV events while it lives."""
    apis: dict[Dialect, Callable[[SimulatedEngine], VllmApi | SglangApi | TensorrtApi]] = {
        "vllm": VllmApi,
        "sglang": SglangApi,
        "tensorrt_llm": TensorrtApi,
    }
    api = apis[engine.config.dialect](engine)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        replay = asyncio.ensure_future(engine.publisher.serve()) if engine.publisher else None
        yield
        if replay is not None and engine.publisher is not None:
            replay.cancel()
            engine.publisher.close()

    handlers: dict[Any, Any] = {ApiError: _api_error, 404: _no_route, 405: _no_route}
    handlers |= dict.fromkeys((ClientGone, ClientDisconnect), _client_gone)
    return Starlette(routes=[*api.routes, *Books(engine).routes], exception_handlers=handlers, lifespan=lifespan)


async def _api_error(_request: Request, fault: ApiError) -> Response:
    return json_reply(fault.body, int(fault.status))


async def _client_gone(_request: Request, _fault: Exception) -> Response:
    return Response(status_code=499)


async def _no_route(_request: Request, fault: Any) -> Response:
    return json_reply({"detail": fault.detail}, fault.status_code)
