"""A replica's load with TensorRT-LLM's names, as EngineMetrics: its Prometheus page, or its iterations without one.

Names are those of `tensorrt_llm/metrics/collector.py`; counters know finished requests only.
"""

from __future__ import annotations

from collections import defaultdict

from prometheus_client.parser import text_string_to_metric_families

from connectors.engines.base import EngineMetrics
from connectors.engines.histogram import Histogram
from connectors.engines.metrics_page import lines_of
from connectors.engines.tensorrt_answers import Iteration, KvCacheStats

_GAUGES = (
    "trtllm_num_requests_running",
    "trtllm_num_requests_waiting",
    "trtllm_kv_cache_utilization",
    "trtllm_kv_cache_max_blocks",
    "trtllm_kv_cache_tokens_per_block",
)
_COUNTERS = (
    "trtllm_prompt_tokens",
    "trtllm_prompt_cached_tokens",
    "trtllm_kv_cache_reused_blocks",
    "trtllm_kv_cache_missed_blocks",
)
_FIRST_TOKEN = "trtllm_time_to_first_token_seconds"


def parse_metrics(page: str, block_tokens: int | None) -> EngineMetrics:
    """Gauges are the greatest of all processes', counters their sum.

    Releases that count no cached tokens count blocks: then blocks stand for tokens on both sides of the hit rate.

    Args:
        block_tokens: where the page does not tell it.

    Raises:
        ValueError: the page is not Prometheus text.
    """
    sums: dict[str, float] = defaultdict(float)
    gauges: dict[str, float] = {}
    buckets: dict[float, float] = defaultdict(float)
    for family in text_string_to_metric_families(lines_of(page, (*_GAUGES, *_COUNTERS, _FIRST_TOKEN))):
        for sample in family.samples:
            if sample.name == f"{_FIRST_TOKEN}_bucket":
                buckets[float(sample.labels["le"])] += sample.value
            elif sample.name in _GAUGES:
                gauges[sample.name] = max(sample.value, gauges.get(sample.name, 0.0))
            else:
                sums[sample.name] += sample.value
    block_tokens = int(gauges.get("trtllm_kv_cache_tokens_per_block", 0)) or block_tokens
    prompt_tokens = sums["trtllm_prompt_tokens_total"]
    if "trtllm_prompt_cached_tokens_total" in sums:
        queried, found = prompt_tokens, sums["trtllm_prompt_cached_tokens_total"]
    else:
        found = sums["trtllm_kv_cache_reused_blocks_total"] * (block_tokens or 0)
        queried = found + sums["trtllm_kv_cache_missed_blocks_total"] * (block_tokens or 0)
    return EngineMetrics(
        running=int(gauges.get("trtllm_num_requests_running", 0)),
        waiting=int(gauges.get("trtllm_num_requests_waiting", 0)),
        kv_usage=gauges.get("trtllm_kv_cache_utilization", 0.0),
        prefix_query_tokens=int(queried),
        prefix_hit_tokens=int(found),
        preemptions=0,
        rejections=0,
        prompt_tokens=int(prompt_tokens),
        sleeping=None,
        blocks_total=int(gauges.get("trtllm_kv_cache_max_blocks", 0)) or None,
        block_tokens=block_tokens,
        ttft_s=Histogram.of(buckets, sums[f"{_FIRST_TOKEN}_sum"]),
    )


def from_iteration(last: Iteration | None, idle: bool, block_tokens: int | None) -> EngineMetrics:
    """What iterations tell without a page: no times to the first token.

    Args:
        last: the newest that was ever heard of; None before the first.
        idle: there was none since the last question, so nothing runs.
    """
    last = last or Iteration()
    cache = last.kv_cache_stats or KvCacheStats()
    block_tokens = cache.tokens_per_block or block_tokens
    queried = (cache.reused_blocks + cache.missed_blocks) * (block_tokens or 0)
    return EngineMetrics(
        running=0 if idle else last.num_active_requests,
        waiting=0 if idle else last.num_queued_requests,
        kv_usage=0.0 if idle or not cache.max_num_blocks else cache.used_num_blocks / cache.max_num_blocks,
        prefix_query_tokens=queried,
        prefix_hit_tokens=cache.reused_blocks * (block_tokens or 0),
        preemptions=0,
        rejections=0,
        prompt_tokens=queried,
        sleeping=None,
        blocks_total=cache.max_num_blocks or None,
        block_tokens=block_tokens,
        ttft_s=Histogram(),
    )
