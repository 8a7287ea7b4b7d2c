"""Whether a model is warmed ahead of its load on one replica (D13). Pure: it judges a forecast and what the host has.

A model is warmed when more requests a second are forecast than `threshold_qps`, memory is free for its footprint and a
reserve, and it starts slowly enough that starting ahead is worth it. By the rule `spec` the mean of the forecast
counts. By `tuned` so many standard errors are taken off it as `doubt` says: near the threshold chance alone carries the
mean above it again and again, and each time a model would be warmed for nothing. It starts a little later for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from analytics.load_forecast import Forecast

Rule = Literal["spec", "tuned"]
Reason = Literal["load", "memory", "quick_start"]


@dataclass(frozen=True)
class AgentConfig:
    """When a model is warmed ahead.

    Attributes:
        threshold_qps: it is not below or at this load.
        reserve: of memory, free GiB must be more than the footprint times this.
        quick_start_ms: it is not where a cold start takes no longer than this.
        rule: what is compared with the threshold.
        doubt: rule `tuned`: standard errors that are taken off the forecast; chance alone passes 1 once in six times.
    """

    threshold_qps: float
    reserve: float = 1.2
    quick_start_ms: float = 35.0
    rule: Rule = "spec"
    doubt: float = 1.0


@dataclass(frozen=True)
class Host:
    """What a model would find.

    Attributes:
        free_gib: memory of the replica that nothing holds.
        footprint_gib: what the model takes.
        cold_start_ms: how long it takes until it answers.
    """

    free_gib: float
    footprint_gib: float
    cold_start_ms: float


class Verdict(NamedTuple):
    """Whether to warm, and all that speaks against it."""

    preheat: bool
    against: tuple[Reason, ...]


def should_preheat_model(qps: float, host: Host, config: AgentConfig) -> Verdict:
    """The specification's rule.

    Args:
        qps: requests a second that are forecast for the next 200 ms, or measured where the threshold is a fixed one.
    """
    against: list[Reason] = []
    if not qps > config.threshold_qps:
        against.append("load")
    if not host.free_gib > host.footprint_gib * config.reserve:
        against.append("memory")
    if not host.cold_start_ms > config.quick_start_ms:
        against.append("quick_start")
    return Verdict(not against, tuple(against))


def judge(forecast: Forecast, host: Host, config: AgentConfig) -> Verdict:
    """What the configured rule says of a forecast."""
    doubt = config.doubt if config.rule == "tuned" else 0.0
    return should_preheat_model(forecast.qps - doubt * forecast.error_qps, host, config)
