"""Histograms of a replica with vLLM's bucket bounds."""

from __future__ import annotations

from bisect import bisect_left

from stoker.simulator.work import Work

_TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_BETWEEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0),
    *(480.0, 960.0, 1920.0, 7680.0),
)
_TOKENS = (*(float(m * 10**e) for e in range(6) for m in (1, 2, 5)),)


class Buckets:
    """Counts by bucket and a sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulated(self) -> list[tuple[str, float]]:
        """(upper bound, observations up to it), as Prometheus wants them."""
        out: list[tuple[str, float]] = []
        seen = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            seen += count
            out.append((bound, float(seen)))
        return out


class Timings:
    """All histograms of one replica by vLLM's names, without the prefix `vllm:`."""

    def __init__(self) -> None:
        self.by_name = {
            "time_to_first_token_seconds": Buckets(_TTFT_S),
            "inter_token_latency_seconds": Buckets(_BETWEEN_S),
            "request_time_per_output_token_seconds": Buckets(_BETWEEN_S),
            "request_queue_time_seconds": Buckets(_REQUEST_S),
            "request_prefill_time_seconds": Buckets(_REQUEST_S),
            "request_decode_time_seconds": Buckets(_REQUEST_S),
            "request_inference_time_seconds": Buckets(_REQUEST_S),
            "e2e_request_latency_seconds": Buckets(_REQUEST_S),
            "request_prefill_kv_computed_tokens": Buckets(_TOKENS),
            "request_prompt_tokens": Buckets(_TOKENS),
            "request_generation_tokens": Buckets(_TOKENS),
            "iteration_tokens_total": Buckets(_TOKENS),
            "request_max_num_generation_tokens": Buckets(_TOKENS),
            "request_params_max_tokens": Buckets(_TOKENS),
            "request_params_n": Buckets((1.0, 2.0, 5.0, 10.0, 20.0)),
            "request_num_preemptions": Buckets((0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)),
        }

    def first_token(self, ttft_s: float, queued_s: float, prefill_s: float) -> None:
        """A request's prefill ended."""
        self.by_name["time_to_first_token_seconds"].observe(ttft_s)
        self.by_name["request_queue_time_seconds"].observe(queued_s)
        self.by_name["request_prefill_time_seconds"].observe(prefill_s)

    def further_token(self, after_s: float) -> None:
        """A decode step ended."""
        self.by_name["inter_token_latency_seconds"].observe(after_s)

    def finished(self, work: Work, decode_s: float, total_s: float) -> None:
        """A request ended by itself."""
        observed = {
            "request_time_per_output_token_seconds": decode_s / max(work.answered - 1, 1),
            "request_decode_time_seconds": decode_s,
            "request_inference_time_seconds": total_s,
            "e2e_request_latency_seconds": total_s,
            "request_prefill_kv_computed_tokens": work.prompt_tokens - work.cached_tokens,
            "request_prompt_tokens": work.prompt_tokens,
            "request_generation_tokens": work.answered,
            "request_max_num_generation_tokens": work.answered,
            "request_params_max_tokens": work.answer_tokens,
            "request_params_n": 1,
            "request_num_preemptions": 0,
        }
        for name, value in observed.items():
            self.by_name[name].observe(value)
