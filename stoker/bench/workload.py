"""Generated request events for the benches: many tenants, prompts that share prefixes, a known share of new queries."""

from __future__ import annotations

import random
from dataclasses import dataclass

from schemas import PromptRef, Render, RequestEvent, Segment, encode

_TRUNK, _FAMILY = 3, 2
"""Leading segments that a tenant's prompts share, and that a family of them shares below."""


@dataclass(frozen=True)
class WorkloadConfig:
    """Shape of the events.

    Attributes:
        seed: the same seed gives the same events.
        tenants: asked for with falling probability.
        distinct: share of events with a query that was never asked before.
        segments: of each prompt, at least 6; the leading ones are shared.
        families: prompt families of a tenant.
        users: distinct users over all tenants.
        pool: that every event goes to.
    """

    seed: int = 0
    tenants: int = 50
    distinct: float = 0.3
    segments: int = 8
    families: int = 10
    users: int = 5_000
    pool: str = "gpu"


class Workload:
    """An endless stream of events, one per call."""

    def __init__(self, config: WorkloadConfig | None = None) -> None:
        self.config = config or WorkloadConfig()
        self._random = random.Random(self.config.seed)
        self._made = 0
        self._trunks: dict[object, tuple[Segment, ...]] = {}
        self._asked: list[list[tuple[str, tuple[Segment, ...]]]] = [[] for _ in range(self.config.tenants)]

    def event(self, at_ms: int) -> RequestEvent:
        """The next event, with this arrival time."""
        config, rng = self.config, self._random
        tenant = int(rng.random() * rng.random() * config.tenants)
        asked = self._asked[tenant]
        if not asked or rng.random() < config.distinct:
            turn = (f"what is question {rng.getrandbits(48):012x} of tenant {tenant} about", self._prompt(tenant))
            asked.append(turn)
        else:
            turn = asked[-1 - int(len(asked) * rng.random() ** 3)]
        self._made += 1
        name = f"{config.seed:x}-{self._made:x}"
        return RequestEvent(
            event_id=f"event-{name}",
            request_id=f"request-{name}",
            phase="started",
            occurred_at_ms=at_ms,
            tenant=f"tenant-{tenant:02d}",
            user=f"user-{int(rng.random() * config.users):05d}",
            session=f"session-{tenant:02d}-{rng.getrandbits(16):04x}",
            pool=config.pool,
            model="llama-3.3-70b-instruct",
            api="chat",
            domain="support",
            query=turn[0],
            segments=turn[1],
            input_tokens=sum(segment.tokens for segment in turn[1]),
            stream=True,
            provider="vllm",
            render=Render(template_sha=f"{tenant:032x}", tools_sha=f"{tenant + 4096:032x}"),
            prompt=PromptRef(name=f"assistant-{tenant:02d}", version="2026-11-01"),
            traceparent=f"00-{rng.getrandbits(128):032x}-{rng.getrandbits(64):016x}-01",
        )

    def record(self, at_ms: int) -> bytes:
        """The next event as a record of llm.requests."""
        return encode(self.event(at_ms))

    def _prompt(self, tenant: int) -> tuple[Segment, ...]:
        rng = self._random
        family = int(rng.random() ** 2 * self.config.families)
        own = self.config.segments - _TRUNK - _FAMILY
        return self._shared(tenant, _TRUNK) + self._shared((tenant, family), _FAMILY) + self._new(own)

    def _shared(self, owner: object, count: int) -> tuple[Segment, ...]:
        found = self._trunks.get(owner)
        if found is None:
            found = self._trunks[owner] = self._new(count)
        return found

    def _new(self, count: int) -> tuple[Segment, ...]:
        rng = self._random
        return tuple(
            Segment(
                hash=f"{rng.getrandbits(128):032x}",
                tokens=64 + rng.getrandbits(8),
                role="assistant" if i % 2 else "user",
            )
            for i in range(count)
        )
