"""GET /metrics with vLLM's names, labels and blind spots, as Prometheus text."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from stoker.simulator.page import Family, Page

_BY_SOURCE = ("host", "p2p", "disk", "external_unspecified")
_FINISHED = ("stop", "length", "abort", "error", "repetition")
_SLEEP_STATES = {None: "awake", 0: "awake", 1: "weights_offloaded", 2: "discard_all"}
_ALWAYS_ZERO = (
    "estimated_flops_per_gpu",
    "estimated_read_bytes_per_gpu",
    "estimated_write_bytes_per_gpu",
    "external_prefix_cache_queries",
    "external_prefix_cache_hits",
    "mm_cache_queries",
    "mm_cache_hits",
    "num_preemptions",
)


class Exposition(Page):
    """The page of a vLLM replica."""

    def collect(self) -> Iterator[Family]:
        """Called by the registry for each page."""
        engine, ledger = self._engine, self._engine.ledger
        yield self._gauge("num_requests_running", {"": len(engine.running)})
        waiting = engine.waiting
        yield self._gauge("num_requests_waiting", {"": len(waiting)})
        deferred = sum(1 for work in waiting if work.adapter and not engine.adapters.can_activate(work.adapter))
        reasons = {"capacity": len(waiting) - deferred, "deferred": deferred}
        yield self._gauge("num_requests_waiting_by_reason", reasons, "reason")
        state = _SLEEP_STATES[engine.sleep_level]
        states = {name: float(name == state) for name in ("awake", "weights_offloaded", "discard_all")}
        yield self._gauge("engine_sleep_state", states, "sleep_state")
        yield self._gauge("kv_cache_usage_perc", {"": engine.pool.usage})
        for name in _ALWAYS_ZERO:
            yield self._counter(name, {"": 0})
        yield self._counter("prefix_cache_queries", {"": engine.query_tokens})
        yield self._counter("prefix_cache_hits", {"": engine.hit_tokens})
        yield self._counter("prompt_tokens", {"": engine.query_tokens})
        computed = engine.query_tokens - engine.hit_tokens
        sources = {"local_compute": computed, "local_cache_hit": engine.hit_tokens, "external_kv_transfer": 0}
        yield self._counter("prompt_tokens_by_source", sources, "source")
        yield self._counter("prompt_tokens_cached", {"": engine.hit_tokens})
        cached = {"device": engine.hit_tokens, **dict.fromkeys(_BY_SOURCE, 0)}
        yield self._counter("prompt_tokens_cached_by_source", cached, "source")
        yield self._counter("generation_tokens", {"": ledger.answer_tokens})
        finished = {reason: ledger.outcomes[reason] for reason in _FINISHED}
        yield self._counter("request_success", finished, "finished_reason")
        yield self._rejections()
        for name, buckets in engine.timings.by_name.items():
            family = HistogramMetricFamily(f"vllm:{name}", name, labels=("engine", "model_name"))
            family.add_metric(("0", engine.config.model), buckets.cumulated(), buckets.total)
            yield family
        yield self._adapters()
        yield self._geometry()

    def _gauge(self, name: str, values: Mapping[str, float], label: str = "") -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"vllm:{name}", name, labels=self._labels(label))
        for value_label, value in values.items():
            family.add_metric(self._values(label, value_label), value)
        return family

    def _counter(self, name: str, values: Mapping[str, float], label: str = "") -> CounterMetricFamily:
        family = CounterMetricFamily(f"vllm:{name}", name, labels=self._labels(label))
        for value_label, value in values.items():
            family.add_metric(self._values(label, value_label), value, created=self._engine.started_s)
        return family

    def _labels(self, label: str) -> tuple[str, ...]:
        return ("engine", "model_name", label) if label else ("engine", "model_name")

    def _values(self, label: str, value: str) -> tuple[str, ...]:
        model = self._engine.config.model
        return ("0", model, value) if label else ("0", model)

    def _rejections(self) -> CounterMetricFamily:
        family = CounterMetricFamily(
            "vllm:admission_rejections", "admission_rejections", labels=("model_name", "reason")
        )
        for reason, count in self._engine.rejections.items():
            family.add_metric((self._engine.config.model, reason), count, created=self._engine.started_s)
        return family

    def _adapters(self) -> GaugeMetricFamily:
        """Names only adapters with requests in flight, and has the time as its value: vLLM's blind spot (#45325)."""
        labels = ("max_lora", "running_lora_adapters", "waiting_lora_adapters")
        family = GaugeMetricFamily("vllm:lora_requests_info", "lora_requests_info", labels=labels)
        self._engine.note_adapters()
        slots = str(self._engine.config.max_loras)
        for (running, waiting), at_s in (self._engine.adapter_activity or {("", ""): time.time()}).items():
            family.add_metric((slots, running, waiting), at_s)
        return family

    def _geometry(self) -> GaugeMetricFamily:
        config = self._engine.config
        labels = {
            "engine": "0",
            "block_size": str(config.block_tokens),
            "num_gpu_blocks": str(config.num_blocks),
            "kv_cache_size_tokens": str(config.num_blocks * config.block_tokens),
            "enable_prefix_caching": "True",
        }
        family = GaugeMetricFamily("vllm:cache_config_info", "cache_config_info", labels=tuple(labels))
        family.add_metric(tuple(labels.values()), 1.0)
        return family
