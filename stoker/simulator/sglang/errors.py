"""SGLang's three error bodies: of its OpenAI routes, of its native routes, and of adapter calls."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from stoker.simulator.errors import ApiError


def flat(message: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST, kind: str = "BadRequestError") -> ApiError:
    """A refusal on an OpenAI route."""
    fault = ApiError(status, kind, message)
    fault.body = {"object": "error", "message": message, "type": kind, "param": None, "code": int(status)}
    return fault


def native(message: str) -> ApiError:
    """A refusal on a native route."""
    fault = ApiError(HTTPStatus.BAD_REQUEST, "", message)
    fault.body = {"error": {"message": message}}
    return fault


def malformed(message: str) -> ApiError:
    """A body that does not parse, on any route."""
    return flat(f"1 validation error:\n  {message}", kind=HTTPStatus.BAD_REQUEST.phrase)


def queue_full() -> ApiError:
    """--max-queued-requests was reached, on any route."""
    status = HTTPStatus.SERVICE_UNAVAILABLE
    return flat("The request queue is full.", status, str(int(status)))


def adapter(message: str, loaded: Mapping[str, str]) -> ApiError:
    """An adapter was not loaded or unloaded, for whatever reason."""
    fault = ApiError(HTTPStatus.BAD_REQUEST, "", message)
    fault.body = {"success": False, "error_message": message, "loaded_adapters": dict(loaded)}
    return fault
