"""A model is warmed when load, memory and start all say so."""

from __future__ import annotations

import pytest

from analytics.light_agent import AgentConfig, Host, judge, should_preheat_model
from analytics.load_forecast import Forecast

CONFIG = AgentConfig(threshold_qps=40.0)
HOST = Host(free_gib=12.1, footprint_gib=10.0, cold_start_ms=36.0)


@pytest.mark.parametrize(
    ("qps", "host", "against"),
    [
        (40.1, HOST, ()),
        (40.0, HOST, ("load",)),
        (40.1, Host(12.0, 10.0, 36.0), ("memory",)),
        (40.1, Host(12.1, 10.0, 35.0), ("quick_start",)),
        (0.0, Host(1.0, 10.0, 1.0), ("load", "memory", "quick_start")),
    ],
)
def test_each_bound_must_be_passed(qps: float, host: Host, against: tuple[str, ...]) -> None:
    verdict = should_preheat_model(qps, host, CONFIG)
    assert verdict.against == against
    assert verdict.preheat is (not against)


def test_the_tuned_rule_takes_the_standard_error_off() -> None:
    forecast = Forecast(qps=43.0, low_qps=30.0, high_qps=60.0, error_qps=3.0)
    tuned = AgentConfig(threshold_qps=40.0, rule="tuned", doubt=1.0)
    assert judge(forecast, HOST, CONFIG).preheat
    assert judge(forecast, HOST, tuned).against == ("load",)
    assert judge(Forecast(43.1, 30.0, 60.0, 3.0), HOST, tuned).preheat
