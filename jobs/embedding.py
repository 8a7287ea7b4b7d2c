"""Queries become vectors in Redis: one model call a batch, one round trip for texts and vectors each.

What Redis does not take is dropped and counted, never waited for: a warm-up may be missed, a request stream may not be
held up. The model is loaded once per process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from analytics.clustered import QueryVector
from analytics.envelopes import Embedded, EmbedRequest
from connectors.encoders.base import Encoder
from connectors.redis.base import Blobs, Vector, Vectors
from connectors.settings import EncoderSettings, RedisSettings
from schemas.errors import StokerError

VECTOR_TYPE = np.dtype("<f4")
"""How a vector goes to the clusters."""
PAUSE_MS = 1_000
"""After a failure Redis is left alone for so long: each attempt could block the stream for its time-out."""
SHARE_OF_AGE = 0.1
"""What has taken long to get here may wait for company by so much of that: a backlog is embedded in full batches."""
LONGEST_WAIT_MS = 500


@dataclass(frozen=True)
class EmbedConfig:
    """How queries are embedded.

    Attributes:
        batch: queries in one model call, at most.
        wait_ms: how long a fresh query waits for others, wall time.
        life_ms: how long text and vector stay in Redis, wall time; longer than any command that names them.
        stale_ms: a request older than this is dropped. While a job catches up, or when the model is slower than the
            requests, this empties the queue instead of holding up the stream.
    """

    batch: int
    wait_ms: int
    life_ms: int
    stale_ms: int

    def patience_ms(self, age_ms: int) -> int:
        """How long a query of an age waits for others, both in wall time."""
        return max(self.wait_ms, min(LONGEST_WAIT_MS, int(age_ms * SHARE_OF_AGE)))


class Stored(NamedTuple):
    """A query whose text and vector are in Redis now, as the planner and as its scope's clusters hear of it."""

    embedded: Embedded
    vector: QueryVector


class Embedder:
    """Encoder, Redis and the little that is remembered about its failures.

    Args:
        config: see `EmbedConfig`.
        encoder, vectors, blobs: the ports.
    """

    def __init__(self, config: EmbedConfig, encoder: Encoder, vectors: Vectors, blobs: Blobs) -> None:
        self._config = config
        self._encoder = encoder
        self._vectors = vectors
        self._blobs = blobs
        self._closed_until_ms = 0

    def embed(self, requests: Sequence[EmbedRequest], now_ms: int) -> list[Stored]:
        """Embeds what has no vector yet; stores text and vector of all, whose life begins anew.

        Args:
            requests: any scopes mixed; each is stored in its own scope's keys.
            now_ms: wall time.

        Returns:
            One result per query that is in Redis now; fewer than asked for where requests were stale or Redis failed.
        """
        if now_ms < self._closed_until_ms:
            return []
        by_scope: dict[str, dict[str, EmbedRequest]] = defaultdict(dict)
        for request in requests:
            if now_ms - request.at_ms <= self._config.stale_ms:
                by_scope[request.scope][request.query] = request
        try:
            vectors = {scope: self._known(scope, wanted) for scope, wanted in by_scope.items()}
            self._encode(
                [r for scope in by_scope for q, r in by_scope[scope].items() if q not in vectors[scope]], vectors
            )
            return [done for scope in by_scope for done in self._stored(scope, by_scope[scope], vectors[scope])]
        except StokerError:
            self._closed_until_ms = now_ms + PAUSE_MS
            return []

    def _known(self, scope: str, wanted: dict[str, EmbedRequest]) -> dict[str, Vector]:
        return self._vectors.get(scope, self._encoder.fingerprint, list(wanted))

    def _encode(self, requests: list[EmbedRequest], vectors: dict[str, dict[str, Vector]]) -> None:
        if requests:
            matrix = self._encoder.encode([request.text for request in requests])
            for request, vector in zip(requests, matrix, strict=True):
                vectors[request.scope][request.query] = vector

    def _stored(self, scope: str, wanted: dict[str, EmbedRequest], vectors: dict[str, Vector]) -> list[Stored]:
        texts = {query: request.text.encode() for query, request in wanted.items()}
        self._blobs.put(scope, texts, self._config.life_ms)
        self._vectors.put(scope, self._encoder.fingerprint, vectors, self._config.life_ms)
        return [self._told(request, len(texts[query]), vectors[query]) for query, request in wanted.items()]

    def _told(self, request: EmbedRequest, text_bytes: int, vector: Vector) -> Stored:
        scope, query, fingerprint = request.scope, request.query, self._encoder.fingerprint
        embedded = Embedded(
            scope=scope,
            query=query,
            fingerprint=fingerprint,
            dimension=self._encoder.dimension,
            text_bytes=text_bytes,
            at_ms=request.at_ms,
            trigger=request.trigger,
        )
        return Stored(
            embedded, QueryVector(scope, query, fingerprint, vector.astype(VECTOR_TYPE).tobytes(), request.at_ms)
        )


@cache
def encoder_of(settings: EncoderSettings) -> Encoder:
    """The process's one encoder of these settings; loading it takes about a second."""
    from connectors.encoders import build_encoder

    return build_encoder(settings)


def open_embedder(config: EmbedConfig, encoder: EncoderSettings, redis: RedisSettings) -> Embedder:
    """The embedder of a subtask, on a real Redis."""
    from connectors.redis import RedisBlobs, RedisVectors, sync_client

    client = sync_client(redis)
    return Embedder(config, encoder_of(encoder), RedisVectors(client), RedisBlobs(client))
