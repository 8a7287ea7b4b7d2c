"""TensorRT-LLM's answer bodies, as far as its protocol module tells (serve/openai_protocol.py)."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from stoker.simulator.config import SimulatorConfig
from stoker.simulator.tensorrt.bodies import ChatBody, CompletionBody, TokenizeBody
from stoker.simulator.work import Work

_SCHEMAS: dict[str, type[msgspec.Struct]] = {
    "ChatCompletionRequest": ChatBody,
    "CompletionRequest": CompletionBody,
    "TokenizeRequest": TokenizeBody,
}


def completion(work: Work, text: str, model: str) -> dict[str, Any]:
    """A text completion."""
    choice = {"index": 0, "text": text, "token_ids": None, "logprobs": None, "context_logits": None}
    return _answer(work, f"cmpl-{work.request_id}", "text_completion", choice, model)


def chat(work: Work, text: str, model: str) -> dict[str, Any]:
    """A chat completion."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": text,
        "reasoning_content": None,
        "reasoning": None,
        "tool_calls": [],
    }
    choice = {"index": 0, "message": message, "logprobs": None, "mm_embedding_handle": None}
    return _answer(work, f"chatcmpl-{work.request_id}", "chat.completion", choice, model)


def _answer(work: Work, name: str, kind: str, choice: dict[str, Any], model: str) -> dict[str, Any]:
    ended = {"finish_reason": work.outcome, "stop_reason": None, "disaggregated_params": None}
    return {
        "id": name,
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "choices": [choice | ended],
        "usage": {
            "prompt_tokens": work.prompt_tokens,
            "total_tokens": work.prompt_tokens + work.answered,
            "completion_tokens": work.answered,
            "prompt_tokens_details": {"cached_tokens": work.cached_tokens},
        },
        "prompt_token_ids": None,
    }


def models(config: SimulatorConfig) -> dict[str, Any]:
    """GET /v1/models: the base model alone."""
    card = {"id": config.model, "object": "model", "created": int(time.time()), "owned_by": "tensorrt_llm"}
    return {"object": "list", "data": [card]}


def server_info(config: SimulatorConfig) -> dict[str, Any]:
    """GET /server_info."""
    return {
        "disaggregated_params": None,
        "max_batch_size": config.max_num_seqs,
        "kv_cache_hash_algo": "v1_block_key",
        "tokens_per_block": config.block_tokens,
    }


def description() -> dict[str, Any]:
    """GET /openapi.json: the fields of each request, of all that FastAPI tells of them only the names."""
    schemas = {name: {"properties": _properties(body)} for name, body in _SCHEMAS.items()}
    return {"openapi": "3.1.0", "paths": {}, "components": {"schemas": schemas}}


def _properties(body: type[msgspec.Struct]) -> dict[str, Any]:
    return {field: {} for field in body.__struct_fields__}
