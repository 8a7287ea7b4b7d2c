"""What vLLM counts itself: prompt tokens looked up in the prefix cache and found there, from a page or from Prometheus.

Counters say how much was not found, and not whether anybody had asked for it before. So all of it is an upper bound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from schemas import BrokenConfiguration, StackFault

QUERIES = ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries")
HITS = ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits")
"""Today's names, and those before vLLM 0.10."""
PROMPT = ("vllm:prompt_tokens",)
TIMEOUT_S = 30.0
DAY_S = 86_400.0


@dataclass(frozen=True)
class ModelCounters:
    """Of one model over all engines.

    Attributes:
        query_tokens: prompt tokens that were looked up. hit_tokens: of those the cached ones.
        prompt_tokens: of all requests; more than were looked up where prefix caching is off for some of them.
    """

    model: str
    query_tokens: float
    hit_tokens: float
    prompt_tokens: float

    @property
    def now_share(self) -> float:
        """Cached part of the prompt tokens."""
        asked = max(self.query_tokens, self.prompt_tokens)
        return self.hit_tokens / asked if asked else 0.0


@dataclass(frozen=True)
class Counters:
    """All models, and the time that they were counted in; None where it is not known."""

    models: tuple[ModelCounters, ...]
    span_s: float | None

    @property
    def total(self) -> ModelCounters:
        """All models together."""
        return ModelCounters(
            "all models",
            sum(model.query_tokens for model in self.models),
            sum(model.hit_tokens for model in self.models),
            sum(model.prompt_tokens for model in self.models),
        )

    def per_day(self, tokens: float) -> float | None:
        """What so many tokens are in a day."""
        return None if not self.span_s else tokens * DAY_S / self.span_s


def from_page(page: str, read_at_s: float, name: str) -> Counters:
    """The counters of a `/metrics` page, since its engines started.

    Args:
        read_at_s: when the page was fetched, for the time since the counters began.
        name: of the page, for errors.

    Raises:
        BrokenConfiguration: it is no page of vLLM's.
    """
    from prometheus_client.parser import text_string_to_metric_families

    sums: dict[str, dict[str, float]] = {which: defaultdict(float) for which in ("queries", "hits", "prompt")}
    wanted = {f"{name}_total": which for which, names in _NAMES.items() for name in names}
    began_s: list[float] = []
    try:
        lines = [line for line in page.splitlines() if line.startswith(_STARTS)]
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            for sample in family.samples:
                if sample.name in wanted:
                    sums[wanted[sample.name]][sample.labels.get("model_name", "")] += sample.value
                elif sample.name == "process_start_time_seconds" or sample.name.endswith("_created"):
                    began_s.append(sample.value)
    except ValueError as fault:
        raise BrokenConfiguration(f"{name} is not a Prometheus page ({fault})") from None
    span_s = read_at_s - min(began_s) if began_s else None
    return _counters(sums, span_s if span_s and span_s > 0 else None, name)


def from_prometheus(url: str, hours: float, transport: httpx.BaseTransport | None = None) -> Counters:
    """The increase of the counters over the last hours, from Prometheus's HTTP API.

    Raises:
        BrokenConfiguration: the URL is none, or that Prometheus knows no engine of vLLM's.
        StackFault: it does not answer, or not as Prometheus does.
    """
    if not url.startswith(("http://", "https://")):
        raise BrokenConfiguration(f"--prometheus {url}: not a URL, such as http://prometheus:9090")
    sums: dict[str, dict[str, float]] = {}
    with httpx.Client(base_url=url.rstrip("/"), timeout=TIMEOUT_S, transport=transport) as client:
        for which, names in _NAMES.items():
            series = " or ".join(f"increase({name}_total[{round(hours * 3600)}s])" for name in names)
            sums[which] = _ask(client, f"sum by (model_name) ({series})")
    return _counters(sums, hours * 3600, f"Prometheus at {url}")


_NAMES = {"queries": QUERIES, "hits": HITS, "prompt": PROMPT}
_STARTS = tuple(
    prefix + name
    for name in (*QUERIES, *HITS, *PROMPT, "process_start_time_seconds")
    for prefix in ("", "# TYPE ", "# HELP ")
)


def _counters(sums: Mapping[str, Mapping[str, float]], span_s: float | None, name: str) -> Counters:
    models = sorted({*sums["queries"], *sums["prompt"]})
    if not models or not any(sums["queries"].values()):
        raise BrokenConfiguration(
            f"{name}: no {QUERIES[0]}_total above zero. Is it vLLM, is prefix caching on, and has it had traffic?"
        )
    found = (
        ModelCounters(
            model, sums["queries"].get(model, 0.0), sums["hits"].get(model, 0.0), sums["prompt"].get(model, 0.0)
        )
        for model in models
    )
    return Counters(tuple(found), span_s)


def _ask(client: httpx.Client, query: str) -> dict[str, float]:
    """Value by model of an instant query."""
    try:
        answer = client.get("/api/v1/query", params={"query": query})
        body = answer.json()
        if answer.status_code != 200 or body.get("status") != "success":
            raise StackFault(f"{client.base_url}: {body.get('error') or answer.status_code} for the query {query}")
        return {row["metric"].get("model_name", ""): float(row["value"][1]) for row in body["data"]["result"]}
    except httpx.HTTPError as fault:
        raise StackFault(f"{client.base_url} does not answer ({type(fault).__name__}): is it Prometheus?") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise StackFault(f"{client.base_url} answers, but not as Prometheus's HTTP API does") from None
