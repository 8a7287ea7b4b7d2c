"""Scenarios of `backtest focus` in which questions hardly repeat, and what gathers is the document that they are about.

A document stands in the prompt behind a system prompt, so it is a family of prefixes (D2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stoker.backtests.focus_scenarios import (
    FAMILY,
    LASTS_MS,
    LENGTH_MS,
    QUERY_SCENARIOS,
    SHARE,
    SYSTEM,
    USERS,
    Column,
    Events,
    Make,
    Scenario,
    World,
    truth,
)
from stoker.replay.azure import Arrival

DOCUMENTS = 200
READ = DOCUMENTS + 1
"""A document that nobody asked about before."""


def document_crowd(world: World) -> Scenario:
    """5 % of the traffic asks about one new document, each something else."""
    base = _about_documents(world)
    events, _ = world.gathering(SHARE / (1 - SHARE) * _per_s(base))
    events = replace(events, queries=READ * FAMILY + _own_questions(events))
    crowd = truth(events, 0, np.unique(events.queries).tolist())
    return Scenario("document_crowd", base + events, replace(crowd, queries=frozenset({READ * FAMILY})))


def document_crawler(world: World) -> Scenario:
    """One client asks one thing after another about one document, 20 % of all requests."""
    base, begins = _about_documents(world), world.begins()
    at_ms = world.poisson(0.2 * _per_s(base), begins, LASTS_MS)
    nobody = np.zeros(len(at_ms), dtype=np.int64)
    sweep = Events(at_ms, nobody, nobody, nobody + 2 * USERS)
    return Scenario("document_crawler", base + replace(sweep, queries=READ * FAMILY + _own_questions(sweep)))


def system_rollout(world: World) -> Scenario:
    """A new system prompt reaches half of the gateways, and the rest three minutes later: all families are new ones."""
    base, begins = _about_documents(world), world.begins()
    half = world.chance.random(len(base.at_ms)) < 0.5
    new = ((base.at_ms >= begins) & half) | (base.at_ms >= begins + LASTS_MS)
    return Scenario("system_rollout", replace(base, queries=base.queries + new * SYSTEM))


def _about_documents(world: World) -> Events:
    base = world.base()
    return replace(base, queries=(1 + world.zipf(DOCUMENTS, 1.0, len(base.at_ms))) * FAMILY + _own_questions(base))


def _own_questions(events: Events) -> Column:
    """Numbers that tell a scenario's questions apart; those of other events begin at another time."""
    return events.at_ms * 16 + np.arange(len(events.at_ms)) % 16


def _per_s(events: Events) -> float:
    return len(events.at_ms) / (LENGTH_MS / 1000)


SCENARIOS: dict[str, Make] = {
    **QUERY_SCENARIOS,
    **{make.__name__: make for make in (document_crowd, document_crawler, system_rollout)},
}
"""Every scenario; what each draws depends on its place."""


def generate(name: str, arrivals: Sequence[Arrival], seed: int) -> Scenario:
    """The scenario of a name; the same seed draws the same."""
    chance: Any = np.random.default_rng([seed, list(SCENARIOS).index(name)])
    return SCENARIOS[name](World(arrivals, chance))
