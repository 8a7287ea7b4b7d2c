"""Whether an engine heeds adapters, found out by asking it.

TensorRT-LLM started without LoRA answers a request that brings an adapter along with the base model, and says nothing
(`_enqueue_request` in executor/base_worker.py): what was meant for the adapter would warm the base model's prefixes.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from connectors.engines.base import Warmed
from schemas.errors import RefusedCommand, TransientFault

WORDS = 257
"""Of a trial where the size of a block is not told: more than two of the largest that are in use."""


async def heeds_adapter(
    ask: Callable[[str, Mapping[str, Any] | None], Awaitable[Warmed]],
    lora: Mapping[str, Any],
    block_tokens: int | None,
    url: str,
) -> bool:
    """Whether a text that is resident for the base model is not found with an adapter.

    Three requests: of the base model, with the adapter, and of the base model again, to see that the text was there to
    be found. Its words are new.

    Args:
        ask: asks for one token after a text, with an adapter or without.
        url: of the engine, for the words of a fault.

    Raises:
        TransientFault: the base model does not find it either: evicted meanwhile, or nothing is ever reused.
        RefusedCommand: the adapter is refused, or it is not told what was found.
    """
    count = 2 * block_tokens + 1 if block_tokens else WORDS
    words = " ".join(secrets.token_hex(2) for _ in range(count))
    await ask(words, None)
    adapted, base = await ask(words, lora), await ask(words, None)
    if base.cached_tokens is None or adapted.cached_tokens is None:
        raise RefusedCommand(f"{url} does not tell what it found, nor so whether it uses adapters")
    if not base.cached_tokens:
        raise TransientFault(f"{url} did not find what it was just asked: it reuses no blocks, or is short of them")
    return adapted.cached_tokens < base.cached_tokens
