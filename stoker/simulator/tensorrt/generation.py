"""From a body to work for the engine."""

from __future__ import annotations

import secrets
from array import array

from stoker.simulator.chain import TOKEN_BYTES
from stoker.simulator.engine import SimulatedEngine
from stoker.simulator.tensorrt.adapters import AdapterDesk
from stoker.simulator.tensorrt.bodies import ChatBody, CompletionBody
from stoker.simulator.tensorrt.errors import failed, malformed
from stoker.simulator.work import AdapterFault, Work

DEFAULT_PRIORITY = 0.5
_STEPS = 1_000_000
"""Steps of a priority: the engine's own order is by integers, lower first."""


async def work_of(engine: SimulatedEngine, desk: AdapterDesk, body: CompletionBody | ChatBody) -> Work:
    """The work that a body asks for.

    Raises:
        ApiError: whatever TensorRT-LLM refuses before it starts.
    """
    if body.stream:
        raise failed("The simulator streams no answers in this dialect.")
    prompt = _prompt(engine, body)
    tokens, limit = len(prompt) // TOKEN_BYTES, engine.config.context_tokens
    wanted = body.max_tokens or (body.max_completion_tokens if isinstance(body, ChatBody) else None)
    if tokens == 0:
        raise failed("list index out of range")
    if tokens + (wanted or 1) > limit:
        raise failed(
            f"The sum of prompt length ({tokens}) and max_tokens ({wanted or 1}) should not exceed "
            f"max_seq_len ({limit})"
        )
    salt = body.cache_salt if isinstance(body, ChatBody) else None
    if salt is not None and not salt.strip():
        raise malformed("Parameter 'cache_salt' must be a non-empty string if provided.")
    try:
        adapter = await desk.used(body.lora_request)
    except AdapterFault as fault:
        raise failed(str(fault)) from fault
    priority = DEFAULT_PRIORITY if body.priority is None else body.priority
    return Work(
        request_id=secrets.token_hex(16),
        prompt=prompt,
        answer_tokens=min(wanted or engine.config.answer_tokens, limit - tokens),
        finish="length" if wanted else "stop",
        adapter=adapter,
        salt=salt,
        priority=-round(priority * _STEPS),
    )


def _prompt(engine: SimulatedEngine, body: CompletionBody | ChatBody) -> bytes:
    match body:
        case CompletionBody(prompt=str() as text):
            return engine.tokenizer.encode(text)
        case CompletionBody(prompt=list() as ids) | ChatBody(prompt_token_ids=list() as ids):
            return array("I", ids).tobytes()
        case ChatBody():
            messages = ((message.role, message.text) for message in body.messages)
            return engine.tokenizer.chat(messages, body.tools or [], opening=body.add_generation_prompt)
        case _:
            raise TypeError(body)
