"""vLLM's error bodies: `{"error": {"message", "type", "param", "code"}}` with its wording (recorded from 0.32.0)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from stoker.simulator.work import QueueLimit


class ApiError(Exception):
    """An answer other than 200.

    Args:
        status: HTTP status, repeated as `code`.
        kind: `type` of the body.
        message: text for the caller.
        param: offending field, where vLLM names one.
    """

    def __init__(self, status: HTTPStatus, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {"error": {"message": message, "type": kind, "param": param, "code": int(status)}}


def unknown_model(model: str, served: str) -> ApiError:
    """The model or adapter name is not served."""
    message = f"The model `{model}` does not exist. Valid aliases: {served}."
    return ApiError(HTTPStatus.NOT_FOUND, "NotFoundError", message, "model")


def bad_request(message: str, param: str, value: object = None) -> ApiError:
    """A value that vLLM refuses after it parsed the body."""
    extras = f" (parameter={param}, value={value})" if value is not None else f" (parameter={param})"
    return ApiError(HTTPStatus.BAD_REQUEST, "BadRequestError", message + extras, param)


def malformed(message: str, param: str | None = None) -> ApiError:
    """A body that does not parse."""
    return ApiError(HTTPStatus.BAD_REQUEST, "Bad Request", f"1 validation error:\n  {message}", param)


def too_long(limit: int, prompt_tokens: int) -> ApiError:
    """The prompt alone exceeds the context."""
    return bad_request(
        f"This model's maximum context length is {limit} tokens. However, your prompt contains {prompt_tokens} input "
        "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input "
        "prompt.",
        "input_tokens",
        prompt_tokens,
    )


def refused(message: str) -> ApiError:
    """A prompt that cannot be served, without a field to blame."""
    return ApiError(HTTPStatus.BAD_REQUEST, "BadRequestError", message)


def queue_full(limit: QueueLimit) -> ApiError:
    """A queue limit was reached."""
    why = {
        "max_num_queued_reqs": "The engine is currently busy and cannot accept new requests.",
        "max_num_queued_tokens": "The engine has reached its prefill token backlog limit.",
    }[limit]
    message = f"{why} Please try again later or on a different instance."
    return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE.phrase, message)


def adapter_input(message: str) -> ApiError:
    """A load or unload that cannot be meant so."""
    return ApiError(HTTPStatus.BAD_REQUEST, "InvalidUserInput", message)


def adapter_missing(message: str) -> ApiError:
    """No such adapter."""
    return ApiError(HTTPStatus.NOT_FOUND, "NotFoundError", message)


def internal(message: str) -> ApiError:
    """Anything else."""
    return ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerError", message)


def switched_off() -> ApiError:
    """A route that does not exist in this configuration: not the OpenAI shape, so that callers can tell it."""
    fault = ApiError(HTTPStatus.NOT_FOUND, "", "Not Found")
    fault.body = {"detail": "Not Found"}
    return fault
