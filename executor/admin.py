"""The admin port: /healthz (worth keeping?), /readyz (takes commands?), /metrics (Prometheus), and whether a replica's
cache is warm (/replicas/NAME/cache-warm)."""

from __future__ import annotations

import contextlib
import hmac
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from schemas.errors import StackFault

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from connectors.metrics import PrometheusMetrics
    from executor.service import Executor

log = logging.getLogger(__name__)

_CHALLENGE = {"WWW-Authenticate": "Bearer"}


@asynccontextmanager
async def admin(
    executor: Executor, metrics: PrometheusMetrics, host: str, port: int, token: str | None = None
) -> AsyncIterator[int]:
    """Serves until the block is left; gives the port, which is a free one where 0 was asked for.

    Args:
        token: what /metrics and /replicas ask for; None lets everybody ask. Probes of /healthz and /readyz need none.

    Raises:
        StackFault: the port is taken.
    """
    import asyncio

    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    async def healthz(_request: Request) -> Response:
        broken = executor.broken()
        return JSONResponse({"broken": broken}, 503 if broken else 200)

    async def readyz(_request: Request) -> Response:
        why = executor.unready()
        return JSONResponse({"unready": why, "held_back": executor.held_back()}, 503 if why else 200)

    def admitted(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def asked(request: Request) -> Response:
            shown = request.headers.get("Authorization", "").encode()
            if token is not None and not hmac.compare_digest(shown, f"Bearer {token}".encode()):
                return Response("a bearer token is asked for: executor.admin_token", 401, _CHALLENGE)
            return await answer(request)

        return asked

    async def cache_warm(request: Request) -> Response:
        verdict = await executor.cache_warm.verdict(request.path_params["name"])
        if verdict is None:
            return JSONResponse({"warm": None, "why": "no replica of this name is known here"}, 404)
        return JSONResponse({"warm": verdict.warm, "why": verdict.why}, 200 if verdict.warm else 503)

    async def exposition(_request: Request) -> Response:
        return Response(metrics.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")

    class Server(uvicorn.Server):
        """Signals are the executor's."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    routes = [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", admitted(exposition)),
        Route("/replicas/{name:path}/cache-warm", admitted(cache_warm)),
    ]
    config = uvicorn.Config(Starlette(routes=routes), log_config=None, access_log=False, lifespan="off")
    listener = _listener(host, port)
    server = Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    taken: int = listener.getsockname()[1]
    log.info("admin port", extra={"fields": {"host": host, "port": taken}})
    try:
        yield taken
    finally:
        server.should_exit = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(task, 5)
        listener.close()


def _listener(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port))
    except OSError as fault:
        raise StackFault(
            f"admin port {host}:{port} cannot be opened ({fault.strerror}); set executor.admin_port, 0 for a free one"
        ) from None
