"""vLLM's answer bodies, key for key as recorded from 0.32.0."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from stoker.simulator.adapters import Adapter
from stoker.simulator.config import SimulatorConfig
from stoker.simulator.work import Work

VERSION = "0.32.0"
FINGERPRINT = f"vllm-{VERSION}-simulator"


@dataclass(frozen=True)
class Usage:
    """Token counts of one answer, summed over its prompts.

    Args:
        cached_tokens: None where the server does not tell details.
        created_tokens: as vLLM counts them: full blocks of the prompt minus hits, so that the recomputed last block of
            a block-aligned prompt counts each time; only chat tells it.
    """

    prompt_tokens: int
    answer_tokens: int
    cached_tokens: int | None
    created_tokens: int | None

    @staticmethod
    def of(works: Iterable[Work], config: SimulatorConfig, chat: bool) -> Usage:
        """Usage of finished requests."""
        works = list(works)
        block_tokens = config.block_tokens
        created = sum(work.prompt_tokens // block_tokens * block_tokens - work.cached_tokens for work in works)
        return Usage(
            prompt_tokens=sum(work.prompt_tokens for work in works),
            answer_tokens=sum(work.answered for work in works),
            cached_tokens=sum(work.cached_tokens for work in works) if config.prompt_tokens_details else None,
            created_tokens=created if chat and config.prompt_tokens_details else None,
        )

    def body(self) -> dict[str, Any]:
        """The object in a whole answer."""
        details = None
        if self.cached_tokens is not None:
            details = {
                "cached_tokens": self.cached_tokens,
                "created_cache_tokens": self.created_tokens,
                "multimodal_tokens": None,
            }
        return {**self._counts(), "prompt_tokens_details": details, "completion_tokens_details": None}

    def chunk(self) -> dict[str, Any]:
        """The object in a stream's last chunk, where absent values are left out."""
        body = self._counts()
        if self.cached_tokens is not None:
            body["prompt_tokens_details"] = {"cached_tokens": self.cached_tokens}
            if self.created_tokens is not None:
                body["prompt_tokens_details"]["created_cache_tokens"] = self.created_tokens
        return body

    def _counts(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.answer_tokens,
            "completion_tokens": self.answer_tokens,
        }


def completion(answer_id: str, model: str, texts: list[tuple[str, str]], usage: Usage) -> dict[str, Any]:
    """A whole text completion; `texts` are (text, finish reason) of each prompt."""
    return {
        "id": answer_id,
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": [
            {
                "index": index,
                "text": text,
                "logprobs": None,
                "finish_reason": finish,
                "stop_reason": None,
                "token_ids": None,
                "prompt_logprobs": None,
                "prompt_token_ids": None,
                "routed_experts": None,
            }
            for index, (text, finish) in enumerate(texts)
        ],
        "service_tier": None,
        "system_fingerprint": FINGERPRINT,
        "usage": usage.body(),
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


def chat(answer_id: str, model: str, text: str, finish: str, usage: Usage) -> dict[str, Any]:
    """A whole chat completion."""
    message = {
        "role": "assistant",
        "content": text,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "reasoning": None,
    }
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": finish,
        "stop_reason": None,
        "token_ids": None,
        "routed_experts": None,
    }
    return {
        "id": answer_id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "service_tier": None,
        "system_fingerprint": FINGERPRINT,
        "usage": usage.body(),
        "prompt_logprobs": None,
        "prompt_token_ids": None,
        "prompt_text": None,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


def completion_chunk(answer_id: str, model: str, index: int, text: str, finish: str | None) -> dict[str, Any]:
    """One streamed piece of a text completion."""
    choice = {
        "index": index,
        "text": text,
        "logprobs": None,
        "finish_reason": finish,
        "stop_reason": None,
        "prompt_token_ids": None,
        "token_ids": None,
    }
    return _chunk(answer_id, "text_completion", model, [choice])


def chat_opening(answer_id: str, model: str) -> dict[str, Any]:
    """The first streamed piece of a chat completion, which names the role."""
    choice = {
        "index": 0,
        "delta": {"role": "assistant", "content": ""},
        "logprobs": None,
        "finish_reason": None,
    }
    opening = _chunk(answer_id, "chat.completion.chunk", model, [choice])
    return {**opening, "prompt_token_ids": None, "prompt_text": None}


def chat_chunk(answer_id: str, model: str, text: str, finish: str | None) -> dict[str, Any]:
    """One streamed piece of a chat completion; only the last one has a stop reason."""
    choice: dict[str, Any] = {
        "index": 0,
        "delta": {"content": text},
        "logprobs": None,
        "finish_reason": finish,
    }
    if finish is not None:
        choice["stop_reason"] = None
    choice["token_ids"] = None
    return _chunk(answer_id, "chat.completion.chunk", model, [choice])


def usage_chunk(answer_id: str, kind: str, model: str, usage: Usage) -> dict[str, Any]:
    """The last streamed piece, without choices."""
    body = _chunk(answer_id, kind, model, [])
    return {**body, "usage": usage.chunk(), "system_fingerprint": FINGERPRINT}


def _chunk(answer_id: str, kind: str, model: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": answer_id, "object": kind, "created": int(time.time()), "model": model, "choices": choices}


def models(config: SimulatorConfig, adapters: Iterable[Adapter]) -> dict[str, Any]:
    """GET /v1/models: the base model and every adapter name."""
    cards = [_card(config.model, f"/models/{config.model}", None, config.context_tokens)]
    cards.extend(_card(adapter.name, adapter.path, config.model, None) for adapter in adapters)
    return {"object": "list", "data": cards}


def _card(name: str, root: str, parent: str | None, max_model_len: int | None) -> dict[str, Any]:
    created = int(time.time())
    permission = {
        "id": f"modelperm-{secrets.token_hex(8)}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "vllm",
        "root": root,
        "parent": parent,
        "max_model_len": max_model_len,
        "permission": [permission],
    }
