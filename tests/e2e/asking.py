"""Requests whose texts lie in Redis, as a gateway leaves them: what is hot can be warmed, and new things get hot."""

from __future__ import annotations

import random
from collections.abc import Iterator

from connectors.redis import RedisBlobs
from schemas import Render, RequestEvent, Segment, encode
from schemas.canonical import root_hash, segment_hash

TENANTS = ("shop", "docs", "clinic")
MODEL, POOL, TEMPLATE = "tiny", "gpu", "chat-1"
SYSTEM_WORDS, DOCUMENT_WORDS = 40, 60
ACTIVE = 4
"""Documents of a tenant that are asked about at one time."""
EVERY = 150
"""After so many requests each tenant turns from its oldest document to a new one."""
LIFE_MS = 7_200_000


class Asking:
    """An endless stream of requests about documents that come and go; the same seed asks the same.

    Args:
        name: makes texts and ids different from those of every other run.
        documents: of each tenant. Their texts are put into Redis at once, because a Redis that is killed later must
            not be what keeps a command from being applied.
    """

    def __init__(self, name: str, seed: int, blobs: RedisBlobs, documents: int) -> None:
        self._name = name
        self._random = random.Random(seed)
        self._made = 0
        self._prompts = {tenant: list(self._prompts_of(tenant, blobs, documents)) for tenant in TENANTS}

    def record(self, at_ms: int) -> bytes:
        """The next request."""
        return encode(self.event(at_ms))

    def event(self, at_ms: int) -> RequestEvent:
        """The next request, not encoded."""
        luck, name = self._random, f"{self._name}-{self._made}"
        tenant = luck.choice(TENANTS)
        prompts = self._prompts[tenant]
        segments = prompts[(self._made // EVERY + luck.randrange(ACTIVE)) % len(prompts)]
        repeated = luck.random() < 0.3
        query = f"what about {luck.randrange(100) if repeated else name} of {tenant} {self._name}"
        turn = Segment(segment_hash(segments[-1].hash, "user", query), len(query.split()) + 2, "user")
        self._made += 1
        return RequestEvent(
            event_id=name, request_id=name, phase="started", occurred_at_ms=at_ms, tenant=tenant, pool=POOL,
            user=f"user-{luck.randrange(200)}", session=f"session-{luck.randrange(200)}", model=MODEL, query=query,
            segments=(*segments, turn), input_tokens=sum(segment.tokens for segment in segments) + turn.tokens,
            render=Render(template_sha=TEMPLATE),
        )  # fmt: skip

    def _prompts_of(self, tenant: str, blobs: RedisBlobs, documents: int) -> Iterator[tuple[Segment, ...]]:
        texts: dict[str, bytes] = {}

        def segment(parent: str, what: str, words: int) -> Segment:
            text = " ".join(f"{self._name}{what}{word}" for word in range(words))
            name = segment_hash(parent, "system", text)
            texts[name] = text.encode()
            return Segment(name, words + 2, "system")

        system = segment(root_hash(MODEL, None, TEMPLATE, ""), tenant[:1], SYSTEM_WORDS)
        for number in range(documents):
            yield (system, segment(system.hash, f"{tenant[:1]}{number}.", DOCUMENT_WORDS))
        blobs.put(tenant, texts, LIFE_MS)
