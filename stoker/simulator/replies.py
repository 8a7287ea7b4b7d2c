"""JSON in and out of a route, whatever the dialect."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from stoker.simulator import errors
from stoker.simulator.bodies import Body, Malformed, parse

_encode = msgspec.json.Encoder().encode


async def decoded(request: Request, kind: type[Body], malformed: Malformed = errors.malformed) -> Body:
    """The body of a request.

    Raises:
        ApiError: it is no JSON, or of another shape; made by `malformed`.
    """
    media_type = request.headers.get("content-type", "").lower().partition(";")[0]
    if media_type != "application/json":
        raise malformed("Unsupported Media Type: Only 'application/json' is allowed")
    return parse(await request.body(), kind, malformed)


def json_reply(body: object, status: int = 200) -> Response:
    """An answer."""
    return Response(_encode(body), status, media_type="application/json")
