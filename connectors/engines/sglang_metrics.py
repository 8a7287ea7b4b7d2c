"""A replica's load with SGLang's names, as EngineMetrics: its /metrics page, or /v1/loads where it has none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from prometheus_client.parser import text_string_to_metric_families

from connectors.engines.base import EngineMetrics
from connectors.engines.histogram import Histogram
from connectors.engines.metrics_page import lines_of
from connectors.engines.sglang_answers import Load

_WANTED = (
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
    "sglang:token_usage",
    "sglang:num_retracted_requests",
    "sglang:prompt_tokens",
    "sglang:cached_tokens",
    "sglang:time_to_first_token_seconds",
)
_OF_SCHEDULERS = ("sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:num_retracted_requests_total")


def parse_metrics(page: str, page_tokens: int | None, num_pages: int | None) -> EngineMetrics:
    """Sum over data-parallel ranks.

    Each scheduler tells its own figures, so those of one data-parallel rank are there once for each tensor- and
    pipeline-parallel rank, and again split by priority: of a rank the greatest series without a priority counts.
    Tokens and times to the first token come from the one process in front of them, split by labels that are summed.

    Raises:
        ValueError: the page is not Prometheus text.
    """
    sums: dict[str, float] = defaultdict(float)
    by_rank: dict[tuple[str, str], float] = defaultdict(float)
    buckets: dict[float, float] = defaultdict(float)
    usages: list[float] = []
    for family in text_string_to_metric_families(lines_of(page, _WANTED)):
        for sample in family.samples:
            if sample.name == "sglang:time_to_first_token_seconds_bucket":
                buckets[float(sample.labels["le"])] += sample.value
            elif sample.name == "sglang:token_usage":
                usages.append(sample.value)
            elif sample.name in _OF_SCHEDULERS:
                if not sample.labels.get("priority"):
                    rank = (sample.name, sample.labels.get("dp_rank", ""))
                    by_rank[rank] = max(by_rank[rank], sample.value)
            else:
                sums[sample.name] += sample.value
    for (name, _rank), value in by_rank.items():
        sums[name] += value
    return EngineMetrics(
        running=int(sums["sglang:num_running_reqs"]),
        waiting=int(sums["sglang:num_queue_reqs"]),
        kv_usage=max(usages, default=0.0),
        prefix_query_tokens=int(sums["sglang:prompt_tokens_total"]),
        prefix_hit_tokens=int(sums["sglang:cached_tokens_total"]),
        preemptions=int(sums["sglang:num_retracted_requests_total"]),
        rejections=0,  # its count of aborted requests has those in it that their clients gave up
        prompt_tokens=int(sums["sglang:prompt_tokens_total"]),
        sleeping=None,
        blocks_total=num_pages,
        block_tokens=page_tokens,
        ttft_s=Histogram.of(buckets, sums["sglang:time_to_first_token_seconds_sum"]),
    )


def from_loads(loads: Sequence[Load], page_tokens: int | None, num_pages: int | None) -> EngineMetrics:
    """What schedulers tell without a /metrics page: no counters, so neither hit rates nor restarts can be seen."""
    return EngineMetrics(
        running=sum(load.num_running_reqs for load in loads),
        waiting=sum(load.num_waiting_reqs for load in loads),
        kv_usage=max((load.token_usage for load in loads), default=0.0),
        prefix_query_tokens=0,
        prefix_hit_tokens=0,
        preemptions=0,
        rejections=0,
        prompt_tokens=0,
        sleeping=None,
        blocks_total=num_pages,
        block_tokens=page_tokens,
        ttft_s=Histogram(),
    )
