"""vLLM with a KV tier below it: a prefix that the tier has whole is fetched into host memory, and vLLM is left alone.

vLLM copies such a prefix into its blocks when a request comes, without computing it. So fetching displaces nothing on
the GPU and takes no place in its queue. What the tier lacks is warmed as ever, and vLLM gives it to the tier. No prompt
is sent with an adapter: see `_named`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Unpack

from connectors.engines.base import ChatMessage, Messages, Prompt, Salt, Text, Tool, Warmed
from connectors.engines.http_engine import Client
from connectors.engines.openai_api import ModelList, warmed_as
from connectors.engines.vllm import VllmEngine
from connectors.metrics import SILENT, MetricSink
from connectors.tiers.base import KvTier
from schemas.errors import RefusedCommand, StokerError, TransientFault

log = logging.getLogger(__name__)

TIER_SHARE = 0.5
"""Of a warm-up's time; the rest is left for vLLM."""
DEFAULT_S = 10.0


class TieredVllmEngine(VllmEngine):
    """One vLLM replica with its tier.

    Args:
        tier: closed with the engine.
        tier_model: name that the tier knows the model by; None for the root that vLLM tells.
        replica: its name in metrics.
        url, client: see `VllmEngine`.
    """

    def __init__(
        self,
        url: str,
        *,
        tier: KvTier,
        tier_model: str | None = None,
        replica: str = "",
        metrics: MetricSink = SILENT,
        **client: Unpack[Client],
    ) -> None:
        super().__init__(url, **client)
        self._tier = tier
        self._tier_model = tier_model
        self._replica = replica
        self._sink = metrics

    async def warm_messages(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[Tool] | None = None,
        adapter: str | None = None,
        salt: Salt | None = None,
        request_id: str,
        priority: int | None = None,
        timeout_s: float | None = None,
    ) -> Warmed:
        """By a fetch where the tier has it, else as vLLM does."""
        self._named(model, adapter)  # before the tier is asked
        began = time.monotonic()
        held = await self._held(model, Messages(messages, tools or ()), salt, timeout_s)
        if held is not None:
            return held
        return await super().warm_messages(
            model,
            messages,
            tools=tools,
            salt=salt,
            request_id=request_id,
            priority=priority,
            timeout_s=_left(timeout_s, began),
        )

    async def warm_tokens(
        self,
        model: str,
        tokens: Sequence[int] | str,
        *,
        adapter: str | None = None,
        salt: Salt | None = None,
        request_id: str,
        priority: int | None = None,
        timeout_s: float | None = None,
    ) -> Warmed:
        """By a fetch where the tier has it, else as vLLM does."""
        self._named(model, adapter)  # before the tier is asked
        began = time.monotonic()
        prompt = Text(tokens) if isinstance(tokens, str) else tokens
        held = await self._held(model, prompt, salt, timeout_s)
        if held is not None:
            return held
        return await super().warm_tokens(
            model,
            tokens,
            salt=salt,
            request_id=request_id,
            priority=priority,
            timeout_s=_left(timeout_s, began),
        )

    async def resident(
        self,
        model: str,
        prompt: Prompt,
        *,
        adapter: str | None = None,
        salt: Salt | None = None,
        request_id: str,
        timeout_s: float | None = None,
    ) -> Warmed:
        """Asked of vLLM alone. What it loads from its tier for that it counts as cached."""
        return await warmed_as(
            super().warm_messages,
            super().warm_tokens,
            model,
            prompt,
            adapter=adapter,
            salt=salt,
            request_id=request_id,
            timeout_s=timeout_s,
        )

    def _named(self, model: str, adapter: str | None) -> str:
        """LMCache's keys name no adapter (0.5.6): an adapter's request finds what the base model computed, and leaves
        what the base model's requests then find. A real vLLM 0.32.0 found 768 of 1000 tokens that way.

        Raises:
            RefusedCommand: there is an adapter.
        """
        if adapter is not None:
            raise RefusedCommand(f"adapter {adapter}: LMCache would give what it computes to the base model's requests")
        return model

    async def _held(
        self,
        model: str,
        prompt: Messages | Text | Sequence[int],
        salt: Salt | None,
        timeout_s: float | None,
    ) -> Warmed | None:
        """What the tier holds of a prompt that it has whole; None where vLLM has to be asked.

        A tier that fails costs at most its share of the time: the warm-up goes on without it.
        """
        limit_s = TIER_SHARE * (DEFAULT_S if timeout_s is None else timeout_s)
        try:
            # One deadline over the ids and the fetch: neither may eat what is left for vLLM.
            async with self._within(limit_s):
                ids = await self.tokenize(model, prompt) if isinstance(prompt, Messages | Text) else prompt
                name = self._tier_model or await self._root(model)
                fetched = await self._tier.fetch(name, ids, salt, timeout_s=limit_s)
        except StokerError as fault:
            log.warning("%r is warmed without its tier: %s", self, fault)
            result = "refused" if isinstance(fault, RefusedCommand) else "unanswered"
            self._sink.count("stoker_executor_tier_fetches_total", replica=self._replica, result=result)
            return None
        result = "whole" if fetched.whole else "missing" if fetched.missing else "too_short"
        self._sink.count("stoker_executor_tier_fetches_total", replica=self._replica, result=result)
        return Warmed(len(ids), fetched.tokens, 0) if fetched.whole else None

    async def _root(self, model: str) -> str:
        """The path or name that vLLM was started with, which is what LMCache's keys name."""
        served = await self._http.ask(ModelList, "GET", "/v1/models")
        return next((card.root for card in served.data if card.id == model and card.root), model)

    async def close(self) -> None:
        """Close all connections, the tier's too."""
        try:
            await self._tier.close()
        finally:
            await super().close()


def _left(timeout_s: float | None, began: float) -> float | None:
    """
    Raises:
        TransientFault: nothing is left.
    """
    if timeout_s is None:
        return None
    left_s = timeout_s - (time.monotonic() - began)
    if left_s <= 0:
        raise TransientFault(f"the tier took all of {timeout_s:g} s")
    return left_s
