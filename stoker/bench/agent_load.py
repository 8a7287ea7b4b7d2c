"""What the bench `agent` plays: load of a known rate that is sometimes too much for one copy of a model, and rules that
warm a second one (D13).

Arrivals are Poisson. `bursts` lies somewhat below the threshold for about two minutes and well above it for a quarter
of a minute, and so on; `drift` and `near` are waves of ten and thirty minutes across it, wide and narrow. A copy
answers one request at a time; a rule's word keeps the second copy warm for `HOLD_STEPS`, it is ready after its cold
start, and finishes what it began.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from analytics.light_agent import AgentConfig, Host, Rule, judge, should_preheat_model
from analytics.load_forecast import ForecastConfig, LoadForecast, Vector

STEP_MS = ForecastConfig().step_ms
PER_S = 1000 / STEP_MS
THRESHOLD_QPS = 40.0
QUIET_QPS, BUSY_QPS = (15.0, 34.0), (48.0, 90.0)
QUIET_STEPS, BUSY_STEPS, LEAST_STEPS = 600.0, 75.0, 25
"""Mean lengths of both, beyond the least one."""
WAVES = {"drift": (25.0, 50.0, 3_000), "near": (34.0, 44.0, 9_000)}
"""Least and greatest rate, and the period in steps."""
SHAPES = ("bursts", *WAVES)
HOLD_STEPS = 25
COLD_START_STEPS = 2
ANSWER_MS = 20.0
HOST = Host(free_gib=20.0, footprint_gib=14.0, cold_start_ms=COLD_START_STEPS * STEP_MS)

Decider = Callable[[int, int], bool]
"""Whether to have the model warm, from a step's number and its count."""


@dataclass(frozen=True)
class Load:
    """Steps of arrivals.

    Attributes:
        rates: requests a second, which no rule sees.
        counts: what came.
    """

    rates: tuple[float, ...]
    counts: tuple[int, ...]


def load(shape: str, seed: int, steps: int) -> Load:
    """So many steps of one of `SHAPES`."""
    source = np.random.default_rng(seed)
    rates = _bursts(source, steps) if shape == "bursts" else _wave(source, steps, *WAVES[shape])
    return Load(tuple(rates.tolist()), tuple(source.poisson(rates / PER_S).tolist()))


def _bursts(source: np.random.Generator, steps: int) -> Vector:
    rates = list[float]()
    while len(rates) < steps:
        for (low, high), mean in ((QUIET_QPS, QUIET_STEPS), (BUSY_QPS, BUSY_STEPS)):
            rates += [source.uniform(low, high)] * (LEAST_STEPS + int(source.exponential(mean)))
    return np.array(rates[:steps])


def _wave(source: np.random.Generator, steps: int, low: float, high: float, period: int) -> Vector:
    angles = source.uniform(0, 2 * math.pi) + 2 * math.pi * np.arange(steps) / period
    rates: Vector = low + (high - low) * (1 + np.sin(angles)) / 2
    return rates


def fixed(threshold_qps: float = THRESHOLD_QPS) -> Decider:
    """The requests of the last second, against a fixed threshold: no forecast."""
    config, last = AgentConfig(threshold_qps), deque[int](maxlen=round(PER_S))

    def decide(_step: int, count: int) -> bool:
        last.append(count)
        return should_preheat_model(float(sum(last)), HOST, config).preheat

    return decide


def agent(rule: Rule = "spec") -> Decider:
    """The forecast, against the same threshold."""
    config, forecast = AgentConfig(THRESHOLD_QPS, rule=rule), LoadForecast()

    def decide(step: int, count: int) -> bool:
        forecast.arrived(step * STEP_MS, count)
        return judge(forecast.look((step + 1) * STEP_MS), HOST, config).preheat

    return decide


@dataclass
class Played:
    """What a rule did.

    Attributes:
        triggers: models warmed. false: of these, how many before load that did not pass the threshold in all the time
            that the word for them holds.
        over, over_cold: steps of load over the threshold, and how many of them found no second copy ready.
        warm: steps in which it was kept.
        first_token_ms: of every request.
    """

    triggers: int = 0
    false: int = 0
    over: int = 0
    over_cold: int = 0
    warm: int = 0
    first_token_ms: tuple[float, ...] = ()


def played(load: Load, wanted: Sequence[bool]) -> Played:
    """A run of a rule that said such words at the end of each step."""
    found, until, ready = Played(), -1, -1
    second: list[bool] = []
    for step, rate in enumerate(load.rates):
        warm = step <= until
        second.append(warm and step >= ready)
        found.warm += warm
        if rate > THRESHOLD_QPS:
            found.over += 1
            found.over_cold += not second[-1]
        if wanted[step]:
            if not warm:
                ready = step + 1 + COLD_START_STEPS
                found.triggers += 1
                found.false += not any(each > THRESHOLD_QPS for each in load.rates[step + 1 : step + 1 + HOLD_STEPS])
            until = step + HOLD_STEPS
    found.first_token_ms = tuple(_first_tokens(load.counts, second))
    return found


def _first_tokens(counts: Sequence[int], second: Sequence[bool]) -> list[float]:
    """Requests are spread evenly over their step, and go to whichever copy is free first."""
    free_ms, told = [0.0, 0.0], []
    for step, count in enumerate(counts):
        for number in range(count):
            at_ms = (step + (number + 0.5) / count) * STEP_MS
            copy = 1 if second[step] and free_ms[1] < free_ms[0] else 0
            free_ms[copy] = max(at_ms, free_ms[copy]) + ANSWER_MS
            told.append(free_ms[copy] - at_ms)
    return told
