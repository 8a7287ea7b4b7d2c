"""From a body to work for the engine."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Callable

from stoker.simulator.adapters import Adapter
from stoker.simulator.chain import TOKEN_BYTES
from stoker.simulator.engine import SimulatedEngine
from stoker.simulator.errors import ApiError
from stoker.simulator.sglang.adapters import AdapterDesk
from stoker.simulator.sglang.bodies import Asking, ChatBody, CompletionBody, NativeBody, OpenAiBody
from stoker.simulator.sglang.errors import flat, native
from stoker.simulator.work import AdapterFault, Finish, Work

DEFAULT_PRIORITY = 0
"""What `--default-priority-value` says here."""


async def work_of(engine: SimulatedEngine, desk: AdapterDesk, body: Asking) -> Work:
    """The work that a body asks for.

    Raises:
        ApiError: whatever SGLang refuses before it starts, in the shape of its route.
    """
    refused: Callable[[str], ApiError] = native if isinstance(body, NativeBody) else flat
    if body.stream:
        raise refused("The simulator streams no answers in this dialect.")
    prompt = _prompt(engine, body)
    tokens, limit = len(prompt) // TOKEN_BYTES, engine.config.context_tokens
    if tokens == 0:
        raise refused("The input has no tokens.")
    if tokens >= limit:
        raise refused(f"The input ({tokens} tokens) is longer than the model's context length ({limit} tokens).")
    wanted, finish = _length(engine, body)
    priority = DEFAULT_PRIORITY if body.priority is None else body.priority
    adapter = await _adapter(desk, body, refused)
    return Work(
        request_id=body.rid or secrets.token_hex(16),
        prompt=prompt,
        answer_tokens=min(wanted, limit - tokens),
        finish=finish,
        adapter=adapter,
        salt=_extra_key(body, adapter),
        priority=-priority,
    )


def _prompt(engine: SimulatedEngine, body: Asking) -> bytes:
    match body:
        case NativeBody(text=str() as text) | CompletionBody(prompt=str() as text):
            return engine.tokenizer.encode(text)
        case NativeBody(input_ids=list() as ids) | CompletionBody(prompt=list() as ids):
            return array("I", ids).tobytes()
        case ChatBody():
            messages = ((message.role, message.text) for message in body.messages)
            return engine.tokenizer.chat(messages, body.tools or [], opening=True)
        case _:
            raise native("Either text, input_ids or input_embeds should be provided.")


def _length(engine: SimulatedEngine, body: Asking) -> tuple[int, Finish]:
    match body:
        case NativeBody():
            return body.sampling_params.max_new_tokens, "length"
        case CompletionBody():
            return body.max_tokens, "length"
        case ChatBody():
            limit = body.max_completion_tokens or body.max_tokens
            return (engine.config.answer_tokens, "stop") if limit is None else (limit, "length")
        case _:
            raise TypeError(body)


async def _adapter(desk: AdapterDesk, body: Asking, refused: Callable[[str], ApiError]) -> Adapter | None:
    named = body.model.partition(":")[2] if isinstance(body, OpenAiBody) else ""
    name = named or body.lora_path
    if name is None:
        return None
    try:
        return await desk.used(name)
    except AdapterFault as fault:
        raise refused(str(fault)) from fault


def _extra_key(body: Asking, adapter: Adapter | None) -> str | None:
    """What names the tree: the salt, the extra key and the id of this load of the adapter, joined."""
    salt = body.cache_salt if isinstance(body, OpenAiBody) else None
    load = "" if adapter is None else f"lora-{adapter.adapter_id}"
    return (salt or "") + (body.extra_key or "") + load or None
