"""One streamed request to an engine that speaks OpenAI's API, measured as a gateway sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import msgspec

from stoker.replay.turns import Piece, Turn

Clock = Callable[[], float]


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    choices: tuple[_Choice, ...] = ()
    usage: _Usage | None = None
    error: object = None


_decoder = msgspec.json.Decoder(_Chunk)


@dataclass(frozen=True)
class Answer:
    """What came of one request.

    Attributes:
        status: the engine's HTTP status; 502 where it did not answer or broke off, 504 where it took too long.
        ttft_ms: until the first token, None where none came.
        cached_tokens: of the prompt, None where the engine does not tell.
        error_type: None for a good answer.
        text: of the answer.
    """

    status: int
    latency_ms: float
    ttft_ms: float | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = None
    finish_reason: str | None = None
    error_type: str | None = None
    text: str = field(default="", repr=False)


def body_of(turn: Turn, model: str, request_id: str, salt: str | None) -> tuple[str, dict[str, object]]:
    """Path and body of a turn: completions for token blocks, chat for messages."""
    body: dict[str, object] = {
        "model": turn.adapter or model,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "request_id": request_id,
    }
    if turn.output_tokens is not None:
        body["max_tokens"] = turn.output_tokens
    if salt is not None:
        body["cache_salt"] = salt
    if turn.is_blocks:
        body["prompt"] = [int(token) for piece in turn.pieces for token in piece.text.split()]
        return "/v1/completions", body
    body["messages"] = [{"role": piece.role, "content": piece.text} for piece in turn.pieces]
    return "/v1/chat/completions", body


async def count_tokens(client: httpx.AsyncClient, url: str, model: str, piece: Piece) -> int:
    """Tokens of one message by the engine's /tokenize.

    Raises:
        OSError: no answer. ValueError: an answer that is none.
    """
    messages = [{"role": piece.role, "content": piece.text}]
    body = {"model": model, "messages": messages, "add_generation_prompt": False}
    try:
        answer = await client.post(f"{url}/tokenize", json=body)
        answer.raise_for_status()
        return int(answer.json()["count"])
    except httpx.HTTPStatusError as fault:
        raise ValueError(f"/tokenize: {fault.response.status_code}") from fault
    except httpx.HTTPError as fault:
        raise ConnectionError(f"/tokenize: {type(fault).__name__}") from fault
    except KeyError as fault:
        raise ValueError("/tokenize: no count in the answer") from fault


async def ask(
    client: httpx.AsyncClient,
    url: str,
    path: str,
    body: dict[str, object],
    clock: Clock = time.perf_counter,
) -> Answer:
    """Send one request and read its stream to the end. An engine's failure is an answer, not an exception."""
    started = clock()
    first: float | None = None
    usage = _Usage()
    finish: str | None = None
    pieces: list[str] = []

    def answer(status: int, error: str | None = None) -> Answer:
        details = usage.prompt_tokens_details
        return Answer(
            status=status,
            latency_ms=(clock() - started) * 1000,
            ttft_ms=None if first is None else (first - started) * 1000,
            prompt_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
            cached_tokens=None if details is None else details.cached_tokens,
            finish_reason="error" if error else finish,
            error_type=error,
            text="".join(pieces),
        )

    try:
        async with client.stream("POST", url + path, json=body) as response:
            if response.status_code != 200:
                await response.aread()
                return answer(response.status_code, f"http_{response.status_code}")
            async for line in response.aiter_lines():
                if not line.startswith("data:"):
                    continue
                data = line[5:].strip()
                if data == "[DONE]":
                    return answer(200)
                chunk = _decoder.decode(data)
                if chunk.error is not None:
                    return answer(502, "engine_error")
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    finish = choice.finish_reason or finish
                    piece = choice.text or (choice.delta.content if choice.delta is not None else None)
                    if piece:
                        first = first or clock()
                        pieces.append(piece)
    except httpx.TimeoutException:
        return answer(504, "timeout")
    except httpx.HTTPError as fault:
        return answer(502, type(fault).__name__)
    except msgspec.MsgspecError:
        return answer(502, "unreadable_stream")
    return answer(502, "broken_stream")
