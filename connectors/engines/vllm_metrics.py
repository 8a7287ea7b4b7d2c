"""A replica's /metrics page with vLLM's names, as EngineMetrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from connectors.engines.base import EngineMetrics
from connectors.engines.histogram import Histogram
from connectors.engines.metrics_page import lines_of

_WANTED = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:prefix_cache_queries",
    "vllm:prefix_cache_hits",
    "vllm:num_preemptions",
    "vllm:admission_rejections",
    "vllm:prompt_tokens",
    "vllm:engine_sleep_state",
    "vllm:cache_config_info",
    "vllm:time_to_first_token_seconds",
    "vllm:lora_requests_info",
)


def parse_metrics(page: str) -> EngineMetrics:
    """Sum over engines and models of the page; what is absent counts as 0, or None for geometry and sleep state.

    Raises:
        ValueError: the page is not Prometheus text.
    """
    sums: dict[str, float] = defaultdict(float)
    buckets: dict[float, float] = defaultdict(float)
    block_tokens: int | None = None
    blocks = 0
    usages: list[float] = []
    sleeping: bool | None = None
    adapters: list[tuple[float, dict[str, str]]] = []
    for family in text_string_to_metric_families(lines_of(page, _WANTED)):
        for sample in family.samples:
            if sample.name == "vllm:time_to_first_token_seconds_bucket":
                buckets[float(sample.labels["le"])] += sample.value
            elif sample.name == "vllm:cache_config_info":
                block_tokens = _integer(sample.labels.get("block_size"))
                blocks += _integer(sample.labels.get("num_gpu_blocks")) or 0
            elif sample.name == "vllm:lora_requests_info":
                adapters.append((sample.value, sample.labels))
            elif sample.name == "vllm:kv_cache_usage_perc":
                usages.append(sample.value)
            elif sample.name == "vllm:engine_sleep_state":
                if sample.labels.get("sleep_state") == "awake":
                    sleeping = bool(sleeping) or sample.value == 0
            else:
                sums[sample.name] += sample.value
    # One series for every combination that ever was; its value is the time at which it was last true.
    adapters.sort(key=lambda told: told[0])
    used_s = {name: at_s for at_s, labels in adapters for name in _names(labels, "running_lora_adapters")}
    present = adapters[-1][1] if adapters else {}
    busy = _names(present, "running_lora_adapters") | _names(present, "waiting_lora_adapters")
    return EngineMetrics(
        running=int(sums["vllm:num_requests_running"]),
        waiting=int(sums["vllm:num_requests_waiting"]),
        kv_usage=max(usages, default=0.0),
        prefix_query_tokens=int(sums["vllm:prefix_cache_queries_total"]),
        prefix_hit_tokens=int(sums["vllm:prefix_cache_hits_total"]),
        preemptions=int(sums["vllm:num_preemptions_total"]),
        rejections=int(sums["vllm:admission_rejections_total"]),
        prompt_tokens=int(sums["vllm:prompt_tokens_total"]),
        sleeping=sleeping,
        blocks_total=blocks or None,
        block_tokens=block_tokens,
        ttft_s=Histogram.of(buckets, sums["vllm:time_to_first_token_seconds_sum"]),
        busy_adapters=busy,
        adapter_used_s=used_s,
        adapter_slots=_integer(present.get("max_lora")),
    )


def _names(labels: Mapping[str, str], label: str) -> frozenset[str]:
    return frozenset(labels.get(label, "").split(",")) - {""}


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
