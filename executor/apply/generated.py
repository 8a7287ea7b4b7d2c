"""Warming an answer that nobody has given yet: an engine generates it, and it is stored as any other answer is.

Such a Response names a pool of engines and all of its prompt's messages, the query's last, so that prefill and decode
are paid from that pool's quota and wait for their turn there. It is generated greedily, since one answer then serves
everybody; what the engine cut off, or left empty, serves nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

from connectors.engines.base import Engine, Generated, Messages
from connectors.redis.base import AsyncBlobs
from executor.apply.adapter import lacking
from executor.apply.content import Unusable, prompt_of
from executor.apply.response import ResponseApplier
from executor.apply.salts import SaltStore
from executor.outcomes import Ending
from schemas import OutcomeReason, Response, WarmupCommand
from schemas.canonical import h128, query_sha256

GREEDY = h128("temperature=0")
"""`params_hash` of what is generated here."""


@dataclass(frozen=True)
class GeneratedApplier:
    """Applies Response commands without a `response_ref` on an engine.

    Attributes:
        responses: stores what came out, under its own rules.
        max_tokens: an answer that is not finished by then is not stored.
    """

    blobs: AsyncBlobs
    salts: SaltStore
    responses: ResponseApplier
    max_tokens: int

    async def apply(self, command: WarmupCommand, engine: Engine, timeout_s: float) -> Ending:
        """Generates the answer and puts it into its scope's cache, unless an earlier attempt has.

        Raises:
            TransientFault: engine or Redis did not answer; asking again may help.
            RefusedCommand: the engine said no.
        """
        target = command.target
        assert isinstance(target, Response)
        prompt = target.prompt
        if target.response_ref is not None or prompt is None:
            return _unsupported("a pool of engines generates answers: it wants a prompt and no response_ref")
        if target.model != (prompt.adapter or prompt.model) or target.params_hash not in ("", GREEDY):
            return _unsupported("answers are generated greedily, by the model that the prompt names")
        turned_away = self.responses.turned_away(target)
        if turned_away is not None:
            return turned_away
        # Before everything that waits as long as the engine sleeps.
        if await engine.is_sleeping():
            return Ending("skipped", OutcomeReason.ENGINE_SLEEPING)
        salt = self.salts.find(command.scope, prompt.render.salt_ref) if prompt.render.salt_ref is not None else None
        if prompt.render.salt_ref is not None and salt is None:
            return _unsupported("salt_ref is not one of this scope in executor.salts")
        try:
            rendered = await prompt_of(self.blobs, command.scope, prompt)
        except Unusable as unusable:
            return unusable.ending
        if not isinstance(rendered, Messages):
            return _unsupported("an answer is generated from messages, not from token blocks")
        last = rendered.messages[-1]
        if last["role"] != "user" or query_sha256(last["content"]) != target.query_sha256:
            return Ending("skipped", OutcomeReason.CONTENT_MISMATCH, error="the prompt does not end with the query")
        ready = await self.responses.ready(command, target)
        if ready is not None:
            return ready
        lacks = await lacking(engine, prompt.adapter)
        if lacks is not None:
            return lacks
        made = await engine.generate(
            prompt.model,
            rendered.messages,
            tools=rendered.tools or None,
            adapter=prompt.adapter,
            salt=salt,
            max_tokens=self.max_tokens,
            request_id=f"warmup-{command.command_id}",
            priority=command.priority,
            timeout_s=timeout_s,
        )
        if not made.whole:
            return Ending("skipped", OutcomeReason.ANSWER_INCOMPLETE, tokens_warmed=_spent(made), error=_why(made))
        stored = await self.responses.store(command, target, last["content"], made.text, GREEDY)
        return Ending(stored.status, stored.reason, tokens_warmed=_spent(made), bytes=stored.bytes, error=stored.error)


def _spent(made: Generated) -> int:
    """Tokens that the engine computed: of the prompt what it did not find, and the answer."""
    return made.prompt_tokens - (made.cached_tokens or 0) + made.answer_tokens


def _why(made: Generated) -> str:
    return f"the answer ended by {made.finish_reason or 'nothing told'} after {made.answer_tokens} tokens"


def _unsupported(error: str) -> Ending:
    return Ending("rejected", OutcomeReason.UNSUPPORTED, error=error)
