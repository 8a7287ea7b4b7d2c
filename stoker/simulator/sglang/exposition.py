"""GET /metrics and GET /v1/loads with SGLang's names and blind spots."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from stoker.simulator.page import Family, Page
from stoker.simulator.sglang import VERSION

_HISTOGRAMS = {
    "time_to_first_token_seconds": "time_to_first_token_seconds",
    "inter_token_latency_seconds": "inter_token_latency_seconds",
    "e2e_request_latency_seconds": "e2e_request_latency_seconds",
    "queue_time_seconds": "request_queue_time_seconds",
}
"""SGLang's name of each, and vLLM's, by which the engine keeps them."""


class Exposition(Page):
    """The page of an SGLang replica."""

    def loads(self) -> dict[str, Any]:
        """The answer to /v1/loads."""
        engine = self._engine
        pool = engine.pool
        load = {
            "dp_rank": 0,
            "num_running_reqs": len(engine.running),
            "num_waiting_reqs": len(engine.waiting),
            "num_used_tokens": pool.held * pool.block_tokens,
            "max_total_num_tokens": pool.usable * pool.block_tokens,
            "max_running_requests": engine.config.max_num_seqs,
            "token_usage": pool.usage,
        }
        return {"timestamp": datetime.now(UTC).isoformat(), "version": VERSION, "loads": [load]}

    def collect(self) -> Iterator[Family]:
        """Called by the registry for each page."""
        engine, pool = self._engine, self._engine.pool
        gauges = {
            "num_running_reqs": len(engine.running),
            "num_queue_reqs": len(engine.waiting),
            "num_retracted_reqs": 0,
            "token_usage": pool.usage,
            "kv_used_tokens": pool.held * pool.block_tokens,
            "kv_evictable_tokens": pool.idle * pool.block_tokens,
            "kv_available_tokens": pool.blank * pool.block_tokens,
            "max_total_num_tokens": pool.usable * pool.block_tokens,
            "cache_hit_rate": engine.hit_tokens / max(1, engine.query_tokens),
            "lora_pool_slots_used": len(engine.adapters.on_gpu),
            "lora_pool_slots_total": engine.config.max_loras,
        }
        for name, value in gauges.items():
            gauge = GaugeMetricFamily(f"sglang:{name}", name, labels=("model_name", "tp_rank", "priority"))
            gauge.add_metric((engine.config.model, "0", ""), value)
            yield gauge
        yield self._counter("prompt_tokens", engine.query_tokens, "is_streaming", "false")
        yield self._counter("generation_tokens", engine.ledger.answer_tokens, "is_streaming", "false")
        yield self._counter("cached_tokens", engine.hit_tokens, "cache_source", "device")
        yield self._counter("evicted_tokens", pool.evicted_total * pool.block_tokens, "tp_rank", "0")
        yield self._counter("num_retracted_requests", 0, "tp_rank", "0")
        for name, kept in _HISTOGRAMS.items():
            buckets = engine.timings.by_name[kept]
            histogram = HistogramMetricFamily(f"sglang:{name}", name, labels=("model_name", "is_streaming"))
            histogram.add_metric((engine.config.model, "false"), buckets.cumulated(), buckets.total)
            yield histogram

    def _counter(self, name: str, value: float, label: str, label_value: str) -> CounterMetricFamily:
        family = CounterMetricFamily(f"sglang:{name}", name, labels=("model_name", label))
        family.add_metric((self._engine.config.model, label_value), value, created=self._engine.started_s)
        return family
