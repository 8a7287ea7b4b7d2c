"""Chained behind demand: the first byte of an envelope says where it goes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from pyflink.datastream import ProcessFunction, RuntimeContext

from analytics.envelopes import Tag, body_of, key_of, seal, tag_of
from analytics.pools import for_redis, scope_of_queries
from jobs import metrics
from jobs.operators.tags import ASKED, COUNTS, DELTAS, EMBEDS, INSIGHTS
from jobs.placement import shard_keys
from jobs.rows import Pair, addressed, keyed

_FOR_PLAN = frozenset({Tag.PARTIAL, Tag.REWARDED, Tag.ANSWER})


class Route(ProcessFunction):  # type: ignore[misc]  # untyped base
    """Partials, rewards and answers go on to plan; deltas, who asked, embed requests and insights leave by the side.

    Totals of queries go to their scope's clusters as well.

    Args:
        redis_pool: whose planner gets the totals of queries, of whatever pool, and what was judged.
        embed_shards: buffers that queries wait in for the encoder; a scope has one.
    """

    def __init__(self, redis_pool: str, embed_shards: int) -> None:
        self._redis_pool = redis_pool
        self._embed_shards = embed_shards

    def open(self, runtime_context: RuntimeContext) -> None:
        """Registers the counter."""
        self._buffers = shard_keys(self._embed_shards)
        self._embeds = runtime_context.get_metrics_group().counter(metrics.EMBED_REQUESTS)

    def process_element(self, value: bytes, ctx: ProcessFunction.Context) -> Iterator[Any]:
        """One envelope of demand."""
        del ctx
        tag = tag_of(value)
        if tag in _FOR_PLAN:
            yield addressed(for_redis(value, self._redis_pool) or value)
            scope = scope_of_queries(value)
            if scope is not None:
                yield COUNTS, addressed(seal(Tag.PARTIAL, scope, body_of(value)))
        elif tag == Tag.DELTA:
            yield DELTAS, addressed(value)
        elif tag == Tag.ASKED:
            yield ASKED, addressed(value)
        elif tag == Tag.EMBED:
            self._embeds.inc()
            yield EMBEDS, Pair(self._buffers[zlib.crc32(key_of(value).encode()) % self._embed_shards], value)
        else:
            yield INSIGHTS, keyed(key_of(value), body_of(value))
