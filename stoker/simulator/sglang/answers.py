"""SGLang's answer bodies, as far as its protocol modules tell (entrypoints/openai/protocol.py)."""

from __future__ import annotations

import json
import time
from typing import Any

from stoker.simulator.adapters import Adapter
from stoker.simulator.config import SimulatorConfig
from stoker.simulator.events import EventPublisher
from stoker.simulator.sglang import VERSION
from stoker.simulator.sglang.generation import DEFAULT_PRIORITY
from stoker.simulator.work import Work


def generation(work: Work, text: str) -> dict[str, Any]:
    """A native answer, which always tells what was cached."""
    ended = {"type": work.outcome} | ({"length": work.answered} if work.outcome == "length" else {})
    return {
        "text": text,
        "meta_info": {
            "id": work.request_id,
            "finish_reason": ended,
            "prompt_tokens": work.prompt_tokens,
            "completion_tokens": work.answered,
            "cached_tokens": work.cached_tokens,
            "weight_version": "default",
        },
    }


def completion(work: Work, text: str, model: str, config: SimulatorConfig) -> dict[str, Any]:
    """A text completion."""
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": work.outcome, "matched_stop": None}
    return _answer(work, "text_completion", choice, model, config)


def chat(work: Work, text: str, model: str, config: SimulatorConfig) -> dict[str, Any]:
    """A chat completion."""
    message = {"role": "assistant", "content": text, "reasoning_content": None, "tool_calls": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": work.outcome, "matched_stop": None}
    return _answer(work, "chat.completion", choice, model, config)


def _answer(work: Work, kind: str, choice: dict[str, Any], model: str, config: SimulatorConfig) -> dict[str, Any]:
    details = {"cached_tokens": work.cached_tokens} if config.prompt_tokens_details else None
    return {
        "id": work.request_id,
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": {
            "prompt_tokens": work.prompt_tokens,
            "total_tokens": work.prompt_tokens + work.answered,
            "completion_tokens": work.answered,
            "prompt_tokens_details": details,
            "reasoning_tokens": 0,
        },
        "metadata": {"weight_version": "default"},
    }


def models(config: SimulatorConfig, adapters: list[Adapter]) -> dict[str, Any]:
    """GET /v1/models: the base model and every adapter name."""
    cards = [_card(config.model, config.model, None, config.context_tokens)]
    cards.extend(_card(adapter.name, adapter.path, config.model, None) for adapter in adapters)
    return {"object": "list", "data": cards}


def _card(name: str, root: str, parent: str | None, max_model_len: int | None) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "sglang",
        "root": root,
        "parent": parent,
        "max_model_len": max_model_len,
    }


def server_info(config: SimulatorConfig, publisher: EventPublisher | None) -> dict[str, Any]:
    """GET /server_info, of some hundred arguments those that tell something here."""
    by_priority = config.scheduling_policy == "priority"
    told: dict[str, Any] = {
        "model_path": f"/models/{config.model}",
        "served_model_name": config.model,
        "page_size": config.block_tokens,
        "dp_size": 1,
        "context_length": config.max_model_len,
        "max_queued_requests": config.max_num_queued_reqs,
        "disable_radix_cache": False,
        "radix_eviction_policy": "lru",
        "enable_cache_report": config.prompt_tokens_details,
        "enable_lora": config.runtime_adapters,
        "max_loras_per_batch": config.max_loras,
        "max_loaded_loras": config.max_cpu_loras,
        "enable_lmcache": False,
        "enable_priority_scheduling": by_priority,
        "default_priority_value": DEFAULT_PRIORITY if by_priority else None,
        "schedule_low_priority_values_first": False,
        "max_total_num_tokens": (config.num_blocks - 1) * config.block_tokens,
        "max_req_input_len": config.context_tokens,
        "internal_states": [],
        "version": VERSION,
        "kv_events_config": None,
        "kv_events": None,
    }
    if publisher is not None:
        host, _colon, port = publisher.endpoint.removeprefix("tcp://").rpartition(":")
        given = {"publisher": "zmq", "endpoint": publisher.endpoint, "replay_endpoint": publisher.replay_endpoint}
        told["kv_events_config"] = json.dumps(given | {"topic": publisher.topic})
        told["kv_events"] = {
            "publisher": "zmq",
            "endpoint_host": host,
            "endpoint_port_base": int(port),
            "topic": publisher.topic,
            "block_size": config.block_tokens,
            "dp_size": 1,
        }
    return told
