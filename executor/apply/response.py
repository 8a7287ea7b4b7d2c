"""Warming an answer: query, answer and vector, each by its key, become an entry of the scope's semantic cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from connectors.redis.base import AsyncBlobs, AsyncVectors, Vector
from connectors.redis.semantic import NEAR_LOOKED_AT, SAME_QUERY_DISTANCE, Answer, CacheName, SemanticCache
from executor.apply.content import StoreFault
from executor.outcomes import Ending
from schemas import OutcomeReason, PoisonMessage, RefusedCommand, Response, TransientFault, WarmupCommand
from schemas.canonical import h128, query_sha256


@dataclass(frozen=True)
class ResponseApplier:
    """Applies Response commands.

    Attributes:
        reward_floor: an answer that earned less is not put where users are served from, whatever the planner says.
    """

    blobs: AsyncBlobs
    vectors: AsyncVectors
    cache: SemanticCache
    reward_floor: float
    now_ms: Callable[[], int]

    async def apply(self, command: WarmupCommand) -> Ending:
        """Puts the answer into the cache and finds it there, or takes it out.

        Raises:
            StoreFault: Redis does not answer; doing it again is harmless.
        """
        target = command.target
        assert isinstance(target, Response)
        name = CacheName(command.scope, target.cache, target.fingerprint)
        try:
            if command.action == "invalidate":
                return await self._revoke(command, target, name)
            return await self._put(command, target, name)
        except TransientFault as fault:
            raise StoreFault(str(fault)) from fault
        except PoisonMessage as error:
            return Ending("skipped", OutcomeReason.CONTENT_MISMATCH, error=str(error))
        except RefusedCommand as refusal:
            return Ending("rejected", OutcomeReason(refusal.reason), error=str(refusal))

    async def _revoke(self, command: WarmupCommand, target: Response, name: CacheName) -> Ending:
        try:
            vector = await self._vector(name, target.query_sha256)
        except PoisonMessage:
            vector = None  # a damaged vector must not keep a bad answer alive
        removed = await self.cache.revoke(name, target.query_sha256, command.issued_at_ms, target.response_ref, vector)
        if removed == 0:
            return Ending("skipped", OutcomeReason.ALREADY_ABSENT)
        return Ending("applied", OutcomeReason.DONE)

    async def _put(self, command: WarmupCommand, target: Response, name: CacheName) -> Ending:
        query, reference = target.query_sha256, target.response_ref
        if target.reward < self.reward_floor:
            return Ending(
                "skipped", OutcomeReason.BELOW_REWARD_FLOOR, error=f"{target.reward:g} is below {self.reward_floor:g}"
            )
        if target.until_ms <= self.now_ms():
            return Ending("skipped", OutcomeReason.EXPIRED_CONTENT)
        if reference is None:
            return Ending("skipped", OutcomeReason.UNSUPPORTED, error="answers are not generated here: no response_ref")
        vector = await self._vector(name, query)
        if vector is None:
            return Ending("skipped", OutcomeReason.VECTOR_MISSING)
        texts = await self.blobs.get(command.scope, [query, reference])
        if query not in texts:
            return Ending("skipped", OutcomeReason.TEXT_WITHHELD)
        if reference not in texts:
            return Ending("skipped", OutcomeReason.ANSWER_MISSING)
        prompt, response = texts[query].decode(errors="replace"), texts[reference].decode(errors="replace")
        if query_sha256(prompt) != query:
            return Ending("skipped", OutcomeReason.CONTENT_MISMATCH, error="the text is not the query's")
        if h128(response) != reference:
            return Ending("skipped", OutcomeReason.DIGEST_MISMATCH, error="the answer's text is not its hash's")
        answer = Answer(
            prompt=prompt,
            response=response,
            vector=vector,
            until_ms=target.until_ms,
            issued_at_ms=command.issued_at_ms,
            model=target.model,
            template_version=target.template_version,
            params_hash=target.params_hash,
            semantic_version=target.semantic_version,
            command_id=command.command_id,
            labels={"tenant": command.tenant, "unit": command.unit, "arm": command.arm},
        )
        return await self._written(name, answer)

    async def _written(self, name: CacheName, answer: Answer) -> Ending:
        size = len(answer.prompt.encode()) + len(answer.response.encode()) + answer.vector.nbytes
        if await self._served_already(name, answer):
            return Ending("resident", OutcomeReason.ALREADY_RESIDENT, bytes=size)
        written = await self.cache.put(name, answer)
        if written == "revoked":
            return Ending("skipped", OutcomeReason.REVOKED)
        held = [entry for entry in await self.cache.find(name, answer.query_sha256) if entry.same_place(answer)]
        if not held:
            return Ending("applied", OutcomeReason.UNVERIFIED, error="the entry could not be found in the index")
        if written == "resident":
            return Ending("resident", OutcomeReason.ALREADY_RESIDENT, bytes=size)
        if not any(entry.response == answer.response and entry.until_ms == answer.until_ms for entry in held):
            return Ending("applied", OutcomeReason.UNVERIFIED, error="another writer replaced the entry at once")
        return Ending("applied", OutcomeReason.DONE, bytes=size)

    async def _served_already(self, name: CacheName, answer: Answer) -> bool:
        """Whether the gateway has put this very answer there itself: its hits are not ours to claim."""
        near = await self.cache.nearest(name, answer.vector, SAME_QUERY_DISTANCE, NEAR_LOOKED_AT)
        return any(
            not entry.ours and entry.query_sha256 == answer.query_sha256 and entry.response == answer.response
            for entry in near
        )

    async def _vector(self, name: CacheName, query: str) -> Vector | None:
        return (await self.vectors.get(name.scope, name.fingerprint, [query])).get(query)
