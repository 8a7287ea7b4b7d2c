"""Operator 4: queries wait for company, a few milliseconds if they are fresh, then one model call makes their vectors.

The model works in a thread of its own. A burst of queries that takes it seconds must not hold up the stream that they
came with: nothing here waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from pyflink.datastream import KeyedProcessFunction, RuntimeContext

from analytics.envelopes import EmbedRequest, Tag, open_as, seal
from jobs import metrics
from jobs.embedding import Stored, open_embedder
from jobs.interpreter import settle_in
from jobs.operators.tags import VECTORS
from jobs.rows import addressed
from jobs.settings import JobSettings
from jobs.state import open_log_store

MAX_WAITING = 4_096
"""Queries that wait in one buffer, at most: what comes then is dropped and counted."""


@dataclass
class _Buffer:
    """What waits under one key. Flink's timer of a key stands while anything does.

    Attributes:
        waiting: what the model was not given yet, with the numbers by which state holds it.
        batch: what it was given, and `done`, what becomes of it.
        next: the next number.
    """

    waiting: deque[tuple[int, EmbedRequest]] = field(default_factory=deque)
    batch: list[tuple[int, EmbedRequest]] = field(default_factory=list)
    done: Future[list[Stored]] | None = None
    next: int = 0
    timer: bool = False


class EmbedOperator(KeyedProcessFunction):  # type: ignore[misc]  # untyped base
    """Embedding requests in, `Embedded` envelopes for the Redis pool out, and by the side the vectors for the clusters.

    Every request is in state until its result has left.

    Args:
        settings: the JSON of the job's settings.
    """

    def __init__(self, settings: str) -> None:
        self._settings = settings

    def open(self, runtime_context: RuntimeContext) -> None:
        """Opens state, loads the model and connects to Redis (on first use); the last operator to be complete."""
        settings = JobSettings.from_json(self._settings)
        self._config = settings.embedding()
        self._pool = settings.redis.pool_key
        self._state = open_log_store(runtime_context, slots=0)
        self._buffers: dict[int, _Buffer] = {}
        self._embedder = open_embedder(self._config, settings.encoder, settings.redis)
        self._model = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")
        group = runtime_context.get_metrics_group()
        self._embedded = group.counter(metrics.EMBEDDED)
        self._dropped = group.counter(metrics.EMBEDS_DROPPED)
        settle_in()

    def close(self) -> None:
        """Ends the model's thread; what it was given is still in state."""
        self._model.shutdown(cancel_futures=True)

    def process_element(self, value: bytes, ctx: KeyedProcessFunction.Context) -> Sequence[Any]:
        """One request: the first of a batch sets the timer, the last one hands it over."""
        buffer = self._buffer(int(ctx.get_current_key()))
        if len(buffer.waiting) >= MAX_WAITING:
            self._dropped.inc()
            return ()
        self._state.put(buffer.next, value)
        buffer.waiting.append((buffer.next, open_as(value, EmbedRequest)))
        buffer.next += 1
        full = len(buffer.waiting) >= self._config.batch
        if buffer.timer and not full:
            return ()
        timers = ctx.timer_service()
        now_ms = timers.current_processing_time()
        out = self._go_on(buffer, now_ms) if full else ()
        self._arm(buffer, timers, now_ms)
        return out

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Sequence[Any]:
        """The oldest request has waited long enough, or the model may be done."""
        del timestamp
        buffer, timers = self._buffer(int(ctx.get_current_key())), ctx.timer_service()
        buffer.timer, now_ms = False, timers.current_processing_time()
        out = self._go_on(buffer, now_ms)
        self._arm(buffer, timers, now_ms)
        return out

    def _buffer(self, key: int) -> _Buffer:
        buffer = self._buffers.get(key)
        if buffer is None:
            held = sorted(self._state.items())
            buffer = self._buffers[key] = _Buffer(
                waiting=deque((number, open_as(value, EmbedRequest)) for number, value in held),
                next=held[-1][0] + 1 if held else 0,
                timer=bool(held),
            )
        return buffer

    def _arm(self, buffer: _Buffer, timers: Any, now_ms: int) -> None:
        if buffer.timer or not (buffer.waiting or buffer.done is not None):
            return
        wait_ms = self._config.wait_ms
        if buffer.done is None:
            wait_ms = self._config.patience_ms(now_ms - buffer.waiting[0][1].at_ms)
        timers.register_processing_time_timer(now_ms + wait_ms)
        buffer.timer = True

    def _go_on(self, buffer: _Buffer, now_ms: int) -> list[Any]:
        """Takes what the model has done, and gives it the next batch."""
        out = self._taken(buffer)
        if buffer.waiting and buffer.done is None:
            buffer.batch = [buffer.waiting.popleft() for _ in range(min(self._config.batch, len(buffer.waiting)))]
            requests = [request for _, request in buffer.batch]
            buffer.done = self._model.submit(self._embedder.embed, requests, now_ms)
            out += self._taken(buffer)
        return out

    def _taken(self, buffer: _Buffer) -> list[Any]:
        if buffer.done is None or not buffer.done.done():
            return []
        stored = buffer.done.result()
        for number, _ in buffer.batch:
            self._state.remove(number)
        self._embedded.inc(len(stored))
        self._dropped.inc(len({(r.scope, r.query) for _, r in buffer.batch}) - len(stored))
        buffer.batch, buffer.done = [], None
        return list(self._envelopes(stored))

    def _envelopes(self, done: Sequence[Stored]) -> Iterator[Any]:
        for embedded, vector in done:
            yield addressed(seal(Tag.EMBEDDED, self._pool, embedded))
            yield VECTORS, addressed(seal(Tag.VECTOR, vector.scope, vector))
