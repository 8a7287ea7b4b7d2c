"""TensorRT-LLM's two error bodies. Whatever goes wrong after a body was read, is a 400 of one type."""

from __future__ import annotations

from http import HTTPStatus

from stoker.simulator.errors import ApiError
from stoker.simulator.sglang.errors import flat

__all__ = ["failed", "malformed"]


def failed(message: str) -> ApiError:
    """A request that was not answered, for whatever reason (`create_error_response`)."""
    return flat(message)


def malformed(message: str) -> ApiError:
    """A body that does not parse (`validation_exception_handler`)."""
    fault = ApiError(HTTPStatus.BAD_REQUEST, "", message)
    fault.body = {"error": message}
    return fault
