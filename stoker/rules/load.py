"""Rules about warming a model ahead of its load (D13)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from analytics.light_agent import AgentConfig, Host, Rule, judge
from analytics.load_forecast import Forecast, ForecastConfig, LoadForecast
from stoker.rules.registry import Input, rule

Amount = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]


class LoadInput(Input, frozen=True, kw_only=True):
    """Requests of a replica in each 200 ms, the last ones last, or a forecast of your own; and what a model needs."""

    threshold_qps: Amount
    free_gib: Amount
    footprint_gib: Amount
    cold_start_ms: Amount
    counts: list[Count] = msgspec.field(default_factory=list)
    predicted_qps: Amount | None = None
    step_ms: Annotated[int, Meta(ge=1, le=200)] = 200


def _tuned(asked: LoadInput) -> object:
    """Its standard error is taken off the forecast first."""
    return _decided(asked, "tuned")


@rule(
    "should_preheat_model",
    "D13",
    {
        "counts": [8, 7, 9, 8, 7, 9, 8, 8, 9, 8],
        "threshold_qps": 40,
        "free_gib": 20,
        "footprint_gib": 14,
        "cold_start_ms": 2_400,
    },
    tuned=_tuned,
)
def should_preheat_model(asked: LoadInput) -> object:
    """Whether to warm a model ahead: load forecast over the threshold, room for 1.2 times it, start above 35 ms."""
    return _decided(asked, "spec")


def _decided(asked: LoadInput, rule: Rule) -> object:
    if asked.predicted_qps is not None:
        qps = asked.predicted_qps
        forecast = Forecast(qps, qps, qps, 0.0)
    elif asked.counts:
        load = LoadForecast(ForecastConfig(step_ms=asked.step_ms))
        for step, count in enumerate(asked.counts):
            load.arrived(step * asked.step_ms, count)
        forecast = load.look(len(asked.counts) * asked.step_ms)
    else:
        raise ValueError("a forecast needs counts, or is given as predicted_qps")
    host = Host(asked.free_gib, asked.footprint_gib, asked.cold_start_ms)
    return {"forecast": forecast, "verdict": judge(forecast, host, AgentConfig(asked.threshold_qps, rule=rule))}
