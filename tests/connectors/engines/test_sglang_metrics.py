"""SGLang's metrics page: one scheduler a rank, each telling its figures several times."""

from __future__ import annotations

from connectors.engines.sglang_metrics import parse_metrics

PAGE = """
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{dp_rank="0",tp_rank="0",priority=""} 3
sglang:num_running_reqs{dp_rank="0",tp_rank="1",priority=""} 3
sglang:num_running_reqs{dp_rank="0",tp_rank="0",priority="10"} 2
sglang:num_running_reqs{dp_rank="1",tp_rank="0",priority=""} 4
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{tp_rank="0"} 5
# TYPE sglang:token_usage gauge
sglang:token_usage{dp_rank="0"} 0.25
sglang:token_usage{dp_rank="1"} 0.5
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{is_streaming="true"} 100
sglang:prompt_tokens_total{is_streaming="false"} 20
# TYPE sglang:cached_tokens_total counter
sglang:cached_tokens_total{cache_source="device"} 60
sglang:cached_tokens_total{cache_source="host"} 6
# TYPE sglang:num_retracted_requests_total counter
sglang:num_retracted_requests_total{tp_rank="0"} 2
sglang:num_retracted_requests_total{tp_rank="1"} 2
# TYPE sglang:time_to_first_token_seconds histogram
sglang:time_to_first_token_seconds_bucket{is_streaming="true",le="0.1"} 1
sglang:time_to_first_token_seconds_bucket{is_streaming="true",le="+Inf"} 2
sglang:time_to_first_token_seconds_bucket{is_streaming="false",le="0.1"} 3
sglang:time_to_first_token_seconds_bucket{is_streaming="false",le="+Inf"} 3
sglang:time_to_first_token_seconds_sum{is_streaming="true"} 1.5
sglang:time_to_first_token_seconds_count{is_streaming="true"} 2
"""


def test_no_figure_is_counted_twice() -> None:
    told = parse_metrics(PAGE, 16, 100)
    assert (told.running, told.waiting, told.kv_usage, told.preemptions) == (7, 5, 0.5, 2)
    assert (told.prompt_tokens, told.prefix_query_tokens, told.prefix_hit_tokens) == (120, 120, 66)
    assert (told.block_tokens, told.blocks_total, told.sleeping) == (16, 100, None)
    assert (told.ttft_s.bounds[0], told.ttft_s.counts, told.ttft_s.total) == (0.1, (4.0, 5.0), 1.5)


def test_an_empty_page_is_an_idle_engine() -> None:
    told = parse_metrics("", None, None)
    assert (told.running, told.kv_usage, told.ttft_s.count) == (0, 0.0, 0)
