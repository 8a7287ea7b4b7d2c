"""Plays a gateway: sends a workload's turns to engines at their time, and tells llm.requests about them.

Per turn: render and hash the segments, put their texts into Redis, choose a replica, publish `started`, stream the
answer, publish `finished` with what was measured. An engine that fails gives events with its status, never a stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import httpx

from analytics.scopes import ScopeMap
from schemas import Render, RequestEvent
from schemas.canonical import h64, h128
from stoker.replay.blobs import FreshBlobs
from stoker.replay.events import Marks, finished, started
from stoker.replay.render import Rendered, TokenCounts, rendered
from stoker.replay.stream import Answer, ask, body_of, count_tokens
from stoker.replay.turns import Piece, Turn

KEEP_ALIVE_S = 2.0
NOT_FOUND = 404
"""What vLLM answers where it does not know the model or adapter."""
Publish = Callable[[RequestEvent], None]
Routing = Literal["session", "round_robin"]


@dataclass(frozen=True)
class Salting:
    """A scope's cache salt: the name that events carry and the secret that only the engine gets."""

    ref: str
    value: str = field(repr=False)


@dataclass(frozen=True)
class GatewayConfig:
    """How it behaves.

    Attributes:
        run: makes its request ids different from those of every other run.
        marks: pool, model and user key.
        routing: `session` keeps a conversation on one replica, `round_robin` deals requests out.
        concurrency: requests in flight; when reached, later ones wait and `Gateway.behind_ms` grows.
        timeout_s: of one request.
        salts: by scope.
        adapters: where the weights of each lie: one that a replica does not know is loaded by its first request.
        keep_answers: whether the texts of good answers are stored, so that they can be served again.
    """

    run: str
    marks: Marks
    routing: Routing = "session"
    concurrency: int = 128
    timeout_s: float = 60.0
    salts: Mapping[str, Salting] = field(default_factory=dict)
    adapters: Mapping[str, str] = field(default_factory=dict)
    keep_answers: bool = False


@dataclass(frozen=True)
class Seen:
    """One request as it went: what the demo's statistics are made of."""

    turn: Turn
    scope: str
    start: RequestEvent
    answer: Answer
    stored: str | None = None


class Gateway:
    """A gateway in front of some replicas.

    Args:
        config: see there.
        replicas: name and base URL of each.
        publish: takes the events; must not block.
        blobs: where the texts go; None to put none.
        scopes: which scope a tenant's texts belong to.
        client: HTTP client; closed by its owner.
        wall_ms: the clock of the events.
    """

    def __init__(
        self,
        config: GatewayConfig,
        replicas: Mapping[str, str],
        publish: Publish,
        blobs: FreshBlobs | None,
        scopes: ScopeMap,
        client: httpx.AsyncClient,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._config = config
        self._replicas: Sequence[tuple[str, str]] = tuple(replicas.items())
        self._publish = publish
        self._blobs = blobs
        self._scopes = scopes
        self._client = client
        self._wall_ms = wall_ms
        self._free = asyncio.Semaphore(config.concurrency)
        self._numbers = itertools.count()
        self._next_replica = itertools.cycle(self._replicas)
        self._counts = TokenCounts(self._count)
        self.resting: set[str] = set()
        """Replicas that get no requests for now, as during a restart."""
        self.requests = 0
        self.adapter_misses = 0
        self.errors: Counter[str] = Counter()
        self.behind_ms = 0.0
        """Longest delay between a turn's time and its sending."""

    @property
    def failed(self) -> int:
        """Requests that ended with an error; `errors` tells which."""
        return self.errors.total()

    @property
    def estimated_counts(self) -> int:
        """Segments whose tokens no engine could count."""
        return self._counts.estimated

    async def play(self, turns: Iterable[Turn], seen: Callable[[Seen], None] | None = None) -> None:
        """Send every turn at its time, from now on, and wait for the last answer.

        Args:
            seen: is told of each request that ended.

        Raises:
            StokerError: Kafka or Redis refused; requests still in flight are given up.
        """
        begin = time.monotonic()
        try:
            async with asyncio.TaskGroup() as requests:
                for turn in turns:
                    due_s = begin + turn.at_ms / 1000
                    await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                    await self._free.acquire()
                    self.behind_ms = max(self.behind_ms, (time.monotonic() - due_s) * 1000)
                    requests.create_task(self._serve_one(turn, seen))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from group  # one failure is what a caller can act on

    async def _serve_one(self, turn: Turn, seen: Callable[[Seen], None] | None) -> None:
        try:
            told = await self.serve(turn)
        finally:
            self._free.release()
        if seen is not None:
            seen(told)

    async def serve(self, turn: Turn) -> Seen:
        """One request from its arrival to its end."""
        arrived_ms = self._wall_ms()
        request_id = f"{self._config.run}-{next(self._numbers):07d}"
        scope = self._scopes.scope_of(turn.tenant)
        salting = self._config.salts.get(scope)
        render = Render(salt_ref=None if salting is None else salting.ref)
        shape = await rendered(turn.pieces, self._counts, self._config.marks.model, render, turn.adapter)
        if self._blobs is not None and not turn.withheld:
            await self._blobs.put(scope, texts_of(turn.pieces, shape))
        name, url = self._choose(turn)
        start = started(turn, shape, self._config.marks, request_id, name, arrived_ms)
        self._publish(start)
        path, body = body_of(turn, self._config.marks.model, request_id, None if salting is None else salting.value)
        answer = await ask(self._client, url, path, body)
        if answer.status == NOT_FOUND and turn.adapter is not None and turn.adapter in self._config.adapters:
            answer = await self._ask_after_loading(turn.adapter, url, path, body)
        stored = await self._stored(scope, turn, answer)
        self._publish(finished(start, answer, self._wall_ms(), stored))
        self.requests += 1
        if answer.error_type is not None:
            self.errors[answer.error_type] += 1
        return Seen(turn, scope, start, answer, stored)

    async def _ask_after_loading(self, adapter: str, url: str, path: str, body: dict[str, object]) -> Answer:
        """Loads an adapter that the replica did not know, then asks again; the user waits for both."""
        self.adapter_misses += 1
        began = time.perf_counter()
        weights = {"lora_name": adapter, "lora_path": self._config.adapters[adapter]}
        with contextlib.suppress(httpx.HTTPError):  # refused or already there: what the request then meets decides
            await self._client.post(f"{url}/v1/load_lora_adapter", json=weights)
        waited_ms = (time.perf_counter() - began) * 1000
        answer = await ask(self._client, url, path, body)
        first_ms = None if answer.ttft_ms is None else answer.ttft_ms + waited_ms
        return replace(answer, ttft_ms=first_ms, latency_ms=answer.latency_ms + waited_ms)

    async def _stored(self, scope: str, turn: Turn, answer: Answer) -> str | None:
        """The hash of a good answer whose text was put where an executor finds it."""
        good = answer.error_type is None and bool(answer.text)
        if not good or not self._config.keep_answers or turn.withheld or self._blobs is None:
            return None
        name = h128(answer.text)
        await self._blobs.put(scope, {name: answer.text})
        return name

    def _choose(self, turn: Turn) -> tuple[str, str]:
        awake = [replica for replica in self._replicas if replica[0] not in self.resting] or self._replicas
        if self._config.routing == "round_robin":
            return next(replica for replica in self._next_replica if replica in awake)
        return awake[h64(turn.session) % len(awake)]

    async def _count(self, piece: Piece) -> int:
        return await count_tokens(self._client, self._replicas[0][1], self._config.marks.model, piece)


def texts_of(pieces: Sequence[Piece], shape: Rendered) -> dict[str, str]:
    """The text of each segment, by its hash."""
    return {segment.hash: piece.text for segment, piece in zip(shape.segments, pieces, strict=True)}


def http_client(concurrency: int, timeout_s: float) -> httpx.AsyncClient:
    """A client for so many requests at once; it uses no proxy of the environment, engines are near.

    It lets idle connections go before a server does (uvicorn: after 5 s): on one just being closed a request fails.
    """
    limits = httpx.Limits(
        max_connections=concurrency + 8, max_keepalive_connections=concurrency, keepalive_expiry=KEEP_ALIVE_S
    )
    return httpx.AsyncClient(limits=limits, timeout=httpx.Timeout(timeout_s, connect=5.0), trust_env=False)
