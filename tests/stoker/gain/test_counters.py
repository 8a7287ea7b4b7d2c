"""vLLM's counters, from a page and from Prometheus, the simulator's page among them."""

from __future__ import annotations

import httpx
import pytest

from schemas import BrokenConfiguration, StackFault
from stoker.gain.counters import from_page, from_prometheus
from stoker.simulator.config import SimulatorConfig
from stoker.simulator.engine import SimulatedEngine
from stoker.simulator.exposition import Exposition

PAGE = """# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total{engine="0",model_name="a"} 600.0
vllm:prefix_cache_queries_total{engine="1",model_name="a"} 400.0
# TYPE vllm:prefix_cache_queries_created gauge
vllm:prefix_cache_queries_created{engine="0",model_name="a"} 1000.0
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{engine="0",model_name="a"} 250.0
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{engine="0",model_name="a"} 1000.0
"""


def test_a_page_sums_engines_and_knows_since_when() -> None:
    found = from_page(PAGE, 1000 + 3600, "page")
    [model] = found.models
    assert (model.model, model.query_tokens, model.hit_tokens) == ("a", 1000, 250)
    assert model.now_share == 0.25
    assert found.span_s == 3600
    assert found.per_day(750) == 750 * 24


def test_a_page_without_a_beginning_gives_shares_and_no_day() -> None:
    page = "\n".join(line for line in PAGE.splitlines() if "_created" not in line)
    found = from_page(page, 5000, "page")
    assert found.span_s is None
    assert found.per_day(1) is None


def test_the_old_names_are_known() -> None:
    found = from_page(PAGE.replace("vllm:prefix_cache", "vllm:gpu_prefix_cache"), 4600, "page")
    assert found.total.now_share == 0.25


def test_prompts_that_were_not_looked_up_count_as_missed() -> None:
    found = from_page(PAGE.replace('model_name="a"} 1000.0', 'model_name="a"} 2000.0'), 4600, "page")
    assert found.total.now_share == 0.125


@pytest.mark.parametrize("page", ["", "hello", "# TYPE x counter\nx_total 3\n"])
def test_a_page_that_is_none_of_vllms_is_told_so(page: str) -> None:
    with pytest.raises(BrokenConfiguration, match="is prefix caching on"):
        from_page(page, 1, "page")


def test_a_fresh_engine_has_nothing_to_tell_yet() -> None:
    page = Exposition(SimulatedEngine(SimulatorConfig())).text().decode()
    assert "vllm:prefix_cache_queries_total" in page
    with pytest.raises(BrokenConfiguration, match="has it had traffic"):
        from_page(page, 1, "page")


def test_a_page_of_an_engine_with_traffic_tells_its_share_and_its_age() -> None:
    engine = SimulatedEngine(SimulatorConfig())
    engine.query_tokens, engine.hit_tokens = 4000, 1000
    found = from_page(Exposition(engine).text().decode(), engine.started_s + 60, "page")
    assert found.total.now_share == 0.25
    assert found.span_s == pytest.approx(60, abs=1)


def prometheus(*answers: httpx.Response) -> tuple[httpx.MockTransport, list[str]]:
    queries: list[str] = []
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/api/v1/query"
        queries.append(request.url.params["query"])
        return left.pop(0)

    return httpx.MockTransport(answer), queries


def rows(**values: float) -> httpx.Response:
    result = [{"metric": {"model_name": name}, "value": [1.0, str(value)]} for name, value in values.items()]
    return httpx.Response(200, json={"status": "success", "data": {"resultType": "vector", "result": result}})


def test_prometheus_is_asked_for_the_increase_over_the_hours() -> None:
    transport, queries = prometheus(rows(a=1000, b=10), rows(a=400), rows(a=1000, b=10))
    found = from_prometheus("http://prometheus:9090/", 12, transport)
    assert [model.now_share for model in found.models] == [0.4, 0.0]
    assert found.span_s == 12 * 3600
    assert "increase(vllm:prefix_cache_queries_total[43200s])" in queries[0]
    assert queries[0].startswith("sum by (model_name)")


def test_a_prometheus_that_knows_no_engine_is_told_so() -> None:
    transport, _ = prometheus(rows(), rows(), rows())
    with pytest.raises(BrokenConfiguration, match="Is it vLLM"):
        from_prometheus("http://prometheus:9090", 24, transport)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (httpx.Response(400, json={"status": "error", "error": "parse error"}), "parse error"),
        (httpx.Response(200, text="<html>"), "not as Prometheus's HTTP API does"),
        (httpx.Response(200, json={"status": "success", "data": {}}), "not as Prometheus's HTTP API does"),
    ],
)
def test_what_is_no_prometheus_is_told_so(answer: httpx.Response, sentence: str) -> None:
    transport, _ = prometheus(answer)
    with pytest.raises(StackFault, match=sentence):
        from_prometheus("http://prometheus:9090", 24, transport)


def test_a_prometheus_that_is_not_there_is_told_so() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(StackFault, match="does not answer"):
        from_prometheus("http://prometheus:9090", 24, httpx.MockTransport(refuse))
    with pytest.raises(BrokenConfiguration, match="not a URL"):
        from_prometheus("prometheus:9090", 24)
