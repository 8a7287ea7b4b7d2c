"""Warming a KV prefix: one one-token request, judged by what it found and what it left behind."""

from __future__ import annotations

from dataclasses import dataclass

from connectors.engines.base import Engine, Messages, Prompt, Salt, Tokens, Warmed
from connectors.redis.base import AsyncBlobs
from executor.apply.adapter import lacking
from executor.apply.content import Unusable, prompt_of
from executor.apply.patience import before_sending
from executor.apply.salts import SaltStore
from executor.outcomes import Ending
from schemas import OutcomeReason, Prefix, WarmupCommand

VERIFIED_ONE_IN = 4
"""One command in so many of token blocks is asked for a second time: `/v1/completions` tells not what it created."""


@dataclass(frozen=True)
class PrefixApplier:
    """Applies Prefix commands on an engine."""

    blobs: AsyncBlobs
    salts: SaltStore

    async def apply(self, command: WarmupCommand, engine: Engine, timeout_s: float) -> Ending:
        """Makes the prefix resident on one replica.

        Asking again is harmless: what is resident already is not computed a second time.

        Raises:
            TransientFault: the engine or Redis did not answer; asking again may help.
            RefusedCommand: the engine said no.
        """
        target = command.target
        assert isinstance(target, Prefix)
        with before_sending():
            # Before capabilities, whose probe waits as long as the engine sleeps.
            if await engine.is_sleeping():
                return Ending("skipped", OutcomeReason.ENGINE_SLEEPING)
            able = await engine.capabilities()
        block = able.block_tokens or 1
        if 0 < target.tokens < block:
            return Ending("skipped", OutcomeReason.BELOW_BLOCK, error=f"{target.tokens} tokens, a block has {block}")
        salt = None
        if target.render.salt_ref is not None:
            salt = self.salts.find(command.scope, target.render.salt_ref)
            if salt is None:
                return Ending(
                    "rejected", OutcomeReason.UNSUPPORTED, error="salt_ref is not one of this scope in executor.salts"
                )
        try:
            prompt = await prompt_of(self.blobs, command.scope, target)
        except Unusable as unusable:
            return unusable.ending
        with before_sending():
            lacks = await lacking(engine, target.adapter)
        if lacks is not None:
            return lacks
        warmed = await _warm(engine, command, target, prompt, salt, timeout_s)
        if warmed.created_tokens is None and warmed.cached_tokens is not None:
            return await _by_second_look(engine, command, target, prompt, salt, warmed, block, timeout_s)
        return judged(warmed, block)


async def _warm(
    engine: Engine, command: WarmupCommand, target: Prefix, prompt: Prompt, salt: Salt | None, timeout_s: float
) -> Warmed:
    request_id = f"warmup-{command.command_id}"
    if isinstance(prompt, Messages):
        return await engine.warm_messages(
            target.model,
            prompt.messages,
            tools=prompt.tools or None,
            adapter=target.adapter,
            salt=salt,
            request_id=request_id,
            priority=command.priority,
            timeout_s=timeout_s,
        )
    assert isinstance(prompt, Tokens)
    return await engine.warm_tokens(
        target.model,
        prompt.ids,
        adapter=target.adapter,
        salt=salt,
        request_id=request_id,
        priority=command.priority,
        timeout_s=timeout_s,
    )


def judged(warmed: Warmed, block: int) -> Ending:
    """What a warm-up with full accounting was: new, resident before, or too short for a block.

    vLLM computes the last token of every prompt again, and of a block-aligned prompt it therefore reports the last
    block as created each time.
    """
    if warmed.cached_tokens is None:
        return Ending("applied", OutcomeReason.UNVERIFIED, error="the engine gives no usage details")
    created, cached = warmed.created_tokens or 0, warmed.cached_tokens
    if created == 0 and cached == 0:
        return Ending("skipped", OutcomeReason.BELOW_BLOCK, error=f"{warmed.prompt_tokens} tokens, a block has {block}")
    if created == 0 or (_all_but_recomputed(warmed, block) and created <= block):
        return Ending("resident", OutcomeReason.ALREADY_RESIDENT, tokens_already_resident=cached)
    return Ending("applied", OutcomeReason.DONE, tokens_warmed=created, tokens_already_resident=cached)


def _all_but_recomputed(warmed: Warmed, block: int) -> bool:
    """Whether everything that can be found was found."""
    findable = (warmed.prompt_tokens - 1) // block * block
    return (warmed.cached_tokens or 0) >= findable and warmed.prompt_tokens % block == 0


async def _by_second_look(
    engine: Engine,
    command: WarmupCommand,
    target: Prefix,
    prompt: Prompt,
    salt: Salt | None,
    first: Warmed,
    block: int,
    timeout_s: float,
) -> Ending:
    """Judges a warm-up of token ids, which tells only what it found: by a second, sampled request."""
    found = first.cached_tokens or 0
    findable = (first.prompt_tokens - 1) // block * block
    if findable == 0:
        return Ending("skipped", OutcomeReason.BELOW_BLOCK, error=f"{first.prompt_tokens} tokens, a block has {block}")
    if found >= findable:
        return Ending("resident", OutcomeReason.ALREADY_RESIDENT, tokens_already_resident=found)
    created = first.prompt_tokens // block * block - found
    if int(command.command_id[:8], 16) % VERIFIED_ONE_IN == 0:
        again = await engine.resident(
            target.model,
            prompt,
            adapter=target.adapter,
            salt=salt,
            request_id=f"warmup-{command.command_id}-verify",
            timeout_s=timeout_s,
        )
        if (again.cached_tokens or 0) < findable:
            return Ending(
                "applied",
                OutcomeReason.UNVERIFIED,
                tokens_warmed=max(0, (again.cached_tokens or 0) - found),
                tokens_already_resident=found,
                error=f"a second request found {again.cached_tokens} of {findable} tokens",
            )
    return Ending("applied", OutcomeReason.DONE, tokens_warmed=created, tokens_already_resident=found)
