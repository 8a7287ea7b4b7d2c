"""A workload's events without any engine: what a gateway would have told if each replica were a plain LRU cache.

For a first look (`stoker gain`), for the tour and for tests. Tokens are counted as four characters each, the prefill of
what is missing is all that a first token waits for, and nothing is queued.
"""

from __future__ import annotations

import heapq
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from analytics.cache_models import LruCache, cut, size
from schemas import Render, RequestEvent, Segment
from schemas.canonical import h128
from schemas.replica_sample import ReplicaState
from stoker.replay.events import Marks, finished, started
from stoker.replay.render import Rendered, chain
from stoker.replay.stream import Answer
from stoker.replay.turns import Piece, Turn

CHARS_PER_TOKEN = 4
OPEN_ANSWER_TOKENS = 16
"""Length of an answer that the model ends by itself."""
DECODE_MS_PER_TOKEN = 20.0


@dataclass(frozen=True)
class Restart:
    """A replica that is started anew: it takes no new requests, is gone, and comes back with an empty cache."""

    replica: str
    drains_at_ms: int
    lost_at_ms: int
    ready_at_ms: int

    def state_at(self, at_ms: int) -> ReplicaState:
        """Its state at a time."""
        if not self.drains_at_ms <= at_ms < self.ready_at_ms:
            return "ready"
        return "draining" if at_ms < self.lost_at_ms else "lost"


@dataclass(frozen=True)
class OfflineConfig:
    """The service that is not there.

    Attributes:
        replicas: named r0, r1 and so on; a session stays on one while it is ready.
        capacity_tokens: KV cache of each.
        start_ms: event time of the workload's beginning.
        restarts: of replicas, in the order of time.
    """

    pool: str = "gpu"
    model: str = "tiny"
    replicas: int = 1
    capacity_tokens: int = 100_000
    block_tokens: int = 16
    prefill_tokens_per_s: float = 20_000.0
    start_ms: int = 1_700_000_000_000
    restarts: Sequence[Restart] = ()


class OfflineService:
    """The replicas' caches, and what a gateway before them tells.

    Attributes:
        replicas: their names.
        kept_out: replicas that get no requests, though they are ready.
    """

    def __init__(self, config: OfflineConfig) -> None:
        self.config = config
        self.replicas = tuple(f"r{number}" for number in range(config.replicas))
        self.kept_out: set[str] = set()
        blocks = config.capacity_tokens // config.block_tokens
        self._caches: dict[tuple[str, str], LruCache] = defaultdict(lambda: LruCache(blocks))
        self._marks = Marks(config.pool, config.model, user_key=b"offline")

    def life_of(self, replica: str, at_ms: int) -> tuple[str, ReplicaState]:
        """A replica's incarnation and state at a time."""
        own = [restart for restart in self.config.restarts if restart.replica == replica]
        away = (restart.state_at(at_ms) for restart in own)
        life = 1 + sum(at_ms >= restart.ready_at_ms for restart in own)
        return str(life), next((state for state in away if state != "ready"), "ready")

    def routed(self, session: str, at_ms: int) -> str:
        """Where a session's request goes: to its own replica, and while that one is away to the next."""
        first, count = zlib.crc32(session.encode()), self.config.replicas
        order = [self.replicas[(first + step) % count] for step in range(count)]
        ready = (name for name in order if name not in self.kept_out and self.life_of(name, at_ms)[1] == "ready")
        return next(ready, order[0])

    def request(self, replica: str, segments: Sequence[Segment], at_ms: int) -> tuple[int, int]:
        """What a request or a warm-up finds cached and what it has to compute, in tokens of full blocks."""
        runs = cut([(segment.hash, segment.tokens) for segment in segments], self.config.block_tokens)
        cached = self._caches[replica, self.life_of(replica, at_ms)[0]].request(runs)
        return cached * self.config.block_tokens, (size(runs) - cached) * self.config.block_tokens

    def events(self, turns: Iterable[Turn]) -> Iterator[RequestEvent]:
        """Started and finished events in the order of their times; the same turns give the same events.

        A request meets the caches when the event after its start is asked for.
        """
        config = self.config
        ends: list[tuple[int, int, RequestEvent]] = []
        for number, turn in enumerate(turns):
            at_ms = config.start_ms + turn.at_ms
            while ends and ends[0][0] <= at_ms:
                yield heapq.heappop(ends)[2]
            replica = self.routed(turn.session, at_ms)
            shape = _shape(turn, config.model)
            start = started(turn, shape, self._marks, h128("offline", str(number)), replica, at_ms)
            yield start
            cached, _ = self.request(replica, shape.segments, at_ms)
            ttft_ms = (shape.tokens - cached) / config.prefill_tokens_per_s * 1000
            answered = turn.output_tokens or OPEN_ANSWER_TOKENS
            latency_ms = ttft_ms + answered * DECODE_MS_PER_TOKEN
            answer = Answer(
                status=200,
                ttft_ms=ttft_ms,
                latency_ms=latency_ms,
                prompt_tokens=shape.tokens,
                output_tokens=answered,
                cached_tokens=cached,
                finish_reason="stop",
            )
            end_ms = at_ms + max(1, round(latency_ms))
            heapq.heappush(ends, (end_ms, number, finished(start, answer, end_ms)))
        while ends:
            yield heapq.heappop(ends)[2]


def offline(turns: Iterable[Turn], config: OfflineConfig) -> Iterator[RequestEvent]:
    """The events of a service that nobody warms."""
    return OfflineService(config).events(turns)


def _shape(turn: Turn, model: str) -> Rendered:
    render = Render(template_sha=h128("template", model)[:16])
    return Rendered(chain(turn.pieces, [_tokens(piece) for piece in turn.pieces], model, render, turn.adapter), render)


def _tokens(piece: Piece) -> int:
    if piece.role == "block":
        return piece.text.count(" ") + 1 if piece.text else 0
    return max(1, len(piece.text) // CHARS_PER_TOKEN)
