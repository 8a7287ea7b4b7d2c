"""Bench `agent`: what a forecast and a decision of the light agent take, and how often it warms for nothing (D13).

The load is that of `stoker.bench.agent_load`. The baseline, `fixed`, is a fixed threshold on the requests of the last
second. `matched` is a higher one, which keeps the second copy warm about as long as the rule `spec` does: of each load
it is found in hindsight, so nobody could set it. Times are CPU times of rounds that take turns,
each over the same steps; memory is what Python says a series holds after its life. `cold_share` is the part of the load
over the threshold that found no second copy ready: a rule that never warms has no false trigger, and this of 1. Figures
of triggers are sums over seeds.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable
from functools import partial

from analytics.load_forecast import LoadForecast
from stoker.bench import agent_load as play
from stoker.bench.figures import Figure, Report, at_most

ROUNDS = 9
SERIES = 10
SEEDS = (131, 132, 133)
"""Others than those that the rules were written with."""
MOST_QPS = 80
"""The highest threshold of `matched`."""

Make = Callable[[], play.Decider]


def run(events: int = 18_000) -> Report:
    """Figures decision_us, bytes_per_series, and by load and rule: triggers, false triggers, cold share, warm share and
    p99 of first tokens.

    Args:
        events: steps of 200 ms of each seed.
    """
    report = Report("agent")
    decision_us, fixed_us = _times(play.load("bursts", SEEDS[0], max(ROUNDS, events // 4)))
    report.add(Figure("decision_us", decision_us, "us", fixed_us, at_most(50)))
    held = _bytes(play.load("bursts", SEEDS[0], min(events, 500)))
    report.add(Figure("bytes_per_series", held, "bytes", goal=at_most(64_000)))
    for shape in play.SHAPES:
        loads = [play.load(shape, seed, events) for seed in SEEDS]
        found = {"fixed": _figures(loads, play.fixed), "matched": {}}
        for rule in ("spec", "tuned"):
            found[rule] = _figures(loads, partial(play.agent, rule))
        found["matched"] = _matched(loads, found["spec"]["warm_share"])
        for rule, figures in found.items():
            for name, value in figures.items():
                fewer = at_most(1.0, of="ratio") if name == "false_triggers" and rule in ("spec", "tuned") else None
                baseline = None if rule == "fixed" else found["fixed"].get(name)
                report.add(Figure(f"{name}.{rule}.{shape}", value, baseline=baseline, goal=fewer))
    return report


def _matched(loads: list[play.Load], warm_share: float) -> dict[str, float]:
    """The lowest fixed threshold that keeps the model warm no longer than that."""
    low, high = int(play.THRESHOLD_QPS), MOST_QPS
    while high - low > 1:
        middle = (low + high) // 2
        warm = _figures(loads, partial(play.fixed, middle))["warm_share"]
        low, high = (middle, high) if warm > warm_share else (low, middle)
    return {**_figures(loads, partial(play.fixed, high)), "threshold_qps": high}


def _times(load: play.Load) -> tuple[float, float]:
    """Median time of a step with the agent and with the fixed threshold, in microseconds."""
    rules = (play.agent(), play.fixed())
    taken: tuple[list[float], list[float]] = ([], [])
    size = len(load.counts) // ROUNDS
    for number in range(ROUNDS):
        steps = range(number * size, (number + 1) * size)
        for decide, spent in zip(rules, taken, strict=True):
            began = time.process_time()
            for step in steps:
                decide(step, load.counts[step])
            spent.append((time.process_time() - began) / size * 1e6)
    return statistics.median(taken[0]), statistics.median(taken[1])


def _bytes(load: play.Load) -> float:
    """What one series holds, its share of many, after its life."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    held = [LoadForecast() for _ in range(SERIES)]
    for forecast in held:
        for step, count in enumerate(load.counts):
            forecast.arrived(step * play.STEP_MS, count)
            forecast.look((step + 1) * play.STEP_MS)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / len(held)


def _figures(loads: list[play.Load], make: Make) -> dict[str, float]:
    runs = []
    for load in loads:
        decide = make()
        runs.append(play.played(load, [decide(step, count) for step, count in enumerate(load.counts)]))
    waits = [wait for run in runs for wait in run.first_token_ms]
    return {
        "triggers": sum(run.triggers for run in runs),
        "false_triggers": sum(run.false for run in runs),
        "cold_share": sum(run.over_cold for run in runs) / max(1, sum(run.over for run in runs)),
        "warm_share": sum(run.warm for run in runs) / sum(len(load.counts) for load in loads),
        "first_token_p99_ms": statistics.quantiles(waits, n=100)[-1],
    }
