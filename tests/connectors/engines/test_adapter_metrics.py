"""What vLLM's one metric about adapters tells: activity now, and when each was last active."""

from __future__ import annotations

from connectors.engines.vllm_metrics import parse_metrics

PAGE = """
# HELP vllm:lora_requests_info Running stats on lora requests.
# TYPE vllm:lora_requests_info gauge
vllm:lora_requests_info{max_lora="4",running_lora_adapters="",waiting_lora_adapters=""} 1.0e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="a,b@2",waiting_lora_adapters="c"} 1.3e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="a",waiting_lora_adapters=""} 1.2e+09
"""


def test_the_newest_series_is_the_present_and_the_rest_is_history() -> None:
    told = parse_metrics(PAGE)
    assert told.busy_adapters == {"a", "b@2", "c"}
    assert told.adapter_used_s == {"a": 1.3e9, "b@2": 1.3e9}
    assert told.adapter_slots == 4


def test_an_engine_without_adapters_tells_none() -> None:
    told = parse_metrics("vllm:num_requests_running 0\n")
    assert (told.busy_adapters, told.adapter_used_s, told.adapter_slots) == (frozenset(), {}, None)
