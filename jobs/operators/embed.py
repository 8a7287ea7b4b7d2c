"""Operator 4: queries wait a few milliseconds for company, then one model call makes their vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyflink.datastream import KeyedProcessFunction, RuntimeContext

from analytics.envelopes import EmbedRequest, Tag, open_as, seal
from jobs import metrics
from jobs.embedding import Stored, open_embedder
from jobs.interpreter import settle_in
from jobs.operators.tags import VECTORS
from jobs.settings import JobSettings
from jobs.state import open_list


class EmbedOperator(KeyedProcessFunction):  # type: ignore[misc]  # untyped base
    """Embedding requests in, `Embedded` envelopes for the Redis pool out, and by the side the vectors for the clusters.

    Every waiting request is in state.

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
        self._waiting = open_list(runtime_context, "waiting")
        self._count: dict[int, int] = {}
        self._embedder = open_embedder(self._config, settings.encoder, settings.redis)
        group = runtime_context.get_metrics_group()
        self._embedded = group.counter(metrics.EMBEDDED)
        self._dropped = group.counter(metrics.EMBEDS_DROPPED)
        settle_in()

    def process_element(self, value: bytes, ctx: KeyedProcessFunction.Context) -> Sequence[Any]:
        """One request: the first of a batch sets the timer, the last one flushes."""
        key = int(ctx.get_current_key())
        waiting = self._count.get(key)
        if waiting is None:
            waiting = sum(1 for _ in self._waiting.get() or ())
        self._waiting.add(bytes(value))
        self._count[key] = waiting + 1
        timers = ctx.timer_service()
        if waiting + 1 >= self._config.batch:
            return self._flush(key, timers.current_processing_time())
        if waiting == 0:
            timers.register_processing_time_timer(timers.current_processing_time() + self._config.wait_ms)
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Sequence[Any]:
        """The oldest request has waited long enough."""
        del timestamp
        return self._flush(int(ctx.get_current_key()), ctx.timer_service().current_processing_time())

    def _flush(self, key: int, now_ms: int) -> Sequence[Any]:
        requests = [open_as(bytes(envelope), EmbedRequest) for envelope in self._waiting.get() or ()]
        self._waiting.clear()
        self._count[key] = 0
        if not requests:
            return ()
        done = self._embedder.embed(requests, now_ms)
        self._embedded.inc(len(done))
        self._dropped.inc(len({(r.scope, r.query) for r in requests}) - len(done))
        return list(self._envelopes(done))

    def _envelopes(self, done: Sequence[Stored]) -> Iterator[Any]:
        for embedded, vector in done:
            yield seal(Tag.EMBEDDED, self._pool, embedded)
            yield VECTORS, seal(Tag.VECTOR, vector.scope, vector)
