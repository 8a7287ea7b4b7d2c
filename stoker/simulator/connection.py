"""Work that ends with its connection: a client that goes away cancels its request, as vLLM does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

Result = TypeVar("Result")


class ClientGone(Exception):
    """The client closed the connection before its answer was ready."""


async def while_connected(request: Request, work: Awaitable[Result], notice_s: float = 0.0) -> Result:
    """Result of `work`, which is cancelled `notice_s` after the client went away; then ClientGone is raised."""
    task = asyncio.ensure_future(work)
    listener = asyncio.ensure_future(_disconnected(request.receive))
    try:
        await asyncio.wait((task, listener), return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and notice_s:
            await asyncio.wait((task,), timeout=notice_s)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        for pending in (task, listener):
            pending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listener
        if not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _disconnected(receive: Callable[[], Awaitable[object]]) -> None:
    while True:
        message = await receive()
        if isinstance(message, dict) and message.get("type") == "http.disconnect":
            return


class EventStream(Response):
    """Server-sent events from a generator, which is closed when the client goes away."""

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncGenerator[bytes, None]) -> None:
        self._chunks = chunks
        self.status_code = 200
        self.background = None
        self.init_headers({"cache-control": "no-cache"})

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the generator ends or the client goes away, whichever is first."""
        sender = asyncio.ensure_future(self._send(send))
        listener = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((sender, listener), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pending in (sender, listener):
                pending.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await pending
            await self._chunks.aclose()

    async def _send(self, send: Send) -> None:
        headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        async for chunk in self._chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
