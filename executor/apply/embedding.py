"""Warming an embedding: vector and text, each by its key, become an entry of the scope's RedisVL cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from connectors.redis.base import AsyncBlobs, AsyncVectors, EmbeddingCache, EmbeddingEntry
from executor.apply.content import STORE_FAULTS, StoreFault
from executor.outcomes import Ending
from schemas import Embedding, OutcomeReason, PoisonMessage, WarmupCommand
from schemas.canonical import query_sha256

JITTER_SHARE = 0.1
"""Lives are shortened by up to this share, by query, so that what was warmed together does not end together."""


@dataclass(frozen=True)
class EmbeddingApplier:
    """Applies Embedding commands.

    Attributes:
        life_ms: how long an entry lives.
    """

    blobs: AsyncBlobs
    vectors: AsyncVectors
    cache: EmbeddingCache
    life_ms: int

    async def apply(self, command: WarmupCommand) -> Ending:
        """Writes the entry, unless a gateway or an earlier warm-up already has, and reads it back.

        Raises:
            StoreFault: Redis does not answer; writing again is harmless.
        """
        target = command.target
        assert isinstance(target, Embedding)
        try:
            return await self._apply(command, target)
        except STORE_FAULTS as fault:
            raise StoreFault(str(fault)) from fault
        except PoisonMessage as error:
            return Ending("skipped", OutcomeReason.CONTENT_MISMATCH, error=str(error))

    async def _apply(self, command: WarmupCommand, target: Embedding) -> Ending:
        scope, query = command.scope, target.query_sha256
        vector = (await self.vectors.get(scope, target.fingerprint, [query])).get(query)
        if vector is None:
            return Ending("skipped", OutcomeReason.VECTOR_MISSING)
        body = (await self.blobs.get(scope, [query])).get(query)
        if body is None:
            return Ending("skipped", OutcomeReason.TEXT_WITHHELD)
        text = body.decode(errors="replace")
        if query_sha256(text) != query:
            return Ending("skipped", OutcomeReason.CONTENT_MISMATCH, error="the text is not the query's")
        entry = EmbeddingEntry(text, vector, command.command_id, {"unit": command.unit, "arm": command.arm})
        written = await self.cache.put(scope, target.fingerprint, [entry], self._life_of(query))
        held = await self.cache.get(scope, target.fingerprint, text)
        if held is None or held.shape != vector.shape:
            return Ending("applied", OutcomeReason.UNVERIFIED, error="the entry could not be read back")
        if written == ["resident"]:
            return Ending("resident", OutcomeReason.ALREADY_RESIDENT, bytes=held.nbytes)
        if not np.array_equal(held, vector):
            return Ending("applied", OutcomeReason.UNVERIFIED, error="another writer replaced the entry at once")
        return Ending("applied", OutcomeReason.DONE, bytes=vector.nbytes)

    def _life_of(self, query: str) -> int:
        return max(1, round(self.life_ms * (1 - JITTER_SHARE * int(query[:8], 16) / 0xFFFFFFFF)))
