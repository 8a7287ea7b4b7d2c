"""TensorRT-LLM's figures: Prometheus text with its names (metrics/collector.py), and iterations as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from stoker.simulator.engine import SimulatedEngine
from stoker.simulator.page import Family, Page

_LABELS = {"model_name": "undefined", "engine_type": "undefined"}
_HISTOGRAMS = (
    "time_to_first_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
)


class Exposition(Page):
    """The pages of a TensorRT-LLM replica."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self._told_tokens = 0
        super().__init__(engine)

    def iterations(self) -> list[dict[str, Any]]:
        """What was not told yet: here the present alone, and nothing after a while without a request."""
        engine = self._engine
        if engine.query_tokens == self._told_tokens and not engine.in_flight:
            return []
        self._told_tokens = engine.query_tokens
        pool = engine.pool
        cache = {
            "maxNumBlocks": pool.usable,
            "freeNumBlocks": pool.usable - pool.held,
            "usedNumBlocks": pool.held,
            "tokensPerBlock": pool.block_tokens,
            "reusedBlocks": self._reused_blocks,
            "missedBlocks": self._missed_blocks,
            "cacheHitRate": self._hit_rate,
        }
        running, waiting = len(engine.running), len(engine.waiting)
        return [{"numActiveRequests": running, "numQueuedRequests": waiting, "kvCacheStats": cache}]

    @property
    def _reused_blocks(self) -> int:
        return self._engine.hit_tokens // self._engine.config.block_tokens

    @property
    def _missed_blocks(self) -> int:
        return (self._engine.query_tokens - self._engine.hit_tokens) // self._engine.config.block_tokens

    @property
    def _hit_rate(self) -> float:
        return self._reused_blocks / max(1, self._reused_blocks + self._missed_blocks)

    def collect(self) -> Iterator[Family]:
        """Called by the registry for each page."""
        engine, pool = self._engine, self._engine.pool
        gauges = {
            "num_requests_running": len(engine.running),
            "num_requests_waiting": len(engine.waiting),
            "max_num_active_requests": engine.config.max_num_seqs,
            "kv_cache_hit_rate": self._hit_rate,
            "kv_cache_utilization": pool.usage,
            "kv_cache_max_blocks": pool.usable,
            "kv_cache_free_blocks": pool.usable - pool.held,
            "kv_cache_used_blocks": pool.held,
            "kv_cache_tokens_per_block": pool.block_tokens,
        }
        for name, value in gauges.items():
            gauge = GaugeMetricFamily(f"trtllm_{name}", name, labels=(*_LABELS, "pid"))
            gauge.add_metric((*_LABELS.values(), "1"), value)
            yield gauge
        counters = {
            "prompt_tokens": engine.query_tokens,
            "generation_tokens": engine.ledger.answer_tokens,
            "prompt_cached_tokens": engine.hit_tokens,
            "kv_cache_reused_blocks": self._reused_blocks,
            "kv_cache_missed_blocks": self._missed_blocks,
        }
        for name, value in counters.items():
            counter = CounterMetricFamily(f"trtllm_{name}", name, labels=tuple(_LABELS))
            counter.add_metric(tuple(_LABELS.values()), value)
            yield counter
        for name in _HISTOGRAMS:
            buckets = engine.timings.by_name[name]
            histogram = HistogramMetricFamily(f"trtllm_{name}", name, labels=tuple(_LABELS))
            histogram.add_metric(tuple(_LABELS.values()), buckets.cumulated(), buckets.total)
            yield histogram
