"""Backtest `focus`: the tuned rule beside the two spec rules, over generated scenarios on real arrivals (D2).

A delay is counted from the moment that a crowd's hundredth user was heard of to the slide or minute that reports it, in
slides of 10 s; a report before that moment has none. A crowd that is never reported has all slides to the end of the
run as its delay. The worst seed counts. A false trigger is a slide (a minute, for the spec rules) that reports a crowd
where there is none, of another scope, or without naming what the crowd asks for.

Two scenarios are shown and counted in no total. Bots that each ask once in a while are a crowd by every count until
they repeat themselves; `told_apart_slides` is when the rule says that they are machines. Bots that keep to no clock and
hardly repeat themselves cannot be told from people by when, what and who.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analytics.asked import Asked, AskedRows
from analytics.crowd_config import CrowdConfig
from analytics.crowd_finding import Finding
from analytics.entropy import EntropySums
from analytics.focus import entropy_only, hottest, should_preheat
from analytics.scope_focus import FocusConfig, ScopeFocus
from analytics.stores import MemoryMapStore
from stoker.backtests.data import data_file
from stoker.backtests.focus_families import SCENARIOS, generate
from stoker.backtests.focus_scenarios import (
    BEGINS_MS,
    FAMILY,
    LENGTH_MS,
    SYSTEM,
    UNDECIDABLE,
    Column,
    Events,
    Scenario,
)
from stoker.bench.figures import Figure, Goal, Report, at_most
from stoker.replay.azure import read_arrivals

ARRIVALS = "traces/azure_llm_2023_conv.csv.gz"
PANE_MS = 10_000
MINUTE_MS = 60_000
SEEDS = (6, 7, 8)
"""None of them was looked at while the rule was made: those before them and those from 100 on were."""

LEADS = 2
_HASHES = [(f"{half}{place}", ">i8") for place in range(1 + LEADS) for half in ("high", "low")]
_ROW = np.dtype([("at_ms", ">i8"), ("identity", ">i8"), ("user", ">i8"), *_HASHES])
"""A row of `Asked`; the hashes of query, system prompt and document in two halves each."""


@dataclass(frozen=True)
class Trigger:
    """A crowd that a rule reported, on these queries; a document stands for the first one about it."""

    at_ms: int
    tenant: int
    queries: frozenset[int]


@dataclass
class Score:
    """How a rule did in one scenario, over all seeds.

    Attributes:
        delays: of each crowd, in slides.
        unreported: crowds that were never reported.
        false: triggers where there was nothing.
        triggers: all of them.
        machines_ms: when machines were first recognised by their gaps, in each run where they were.
    """

    delays: list[float] = field(default_factory=list)
    unreported: int = 0
    false: int = 0
    triggers: int = 0
    machines_ms: list[int] = field(default_factory=list)

    def add(self, scenario: Scenario, triggers: list[Trigger]) -> None:
        """Counts a run."""
        self.triggers += len(triggers)
        crowd = scenario.crowd
        if scenario.name in UNDECIDABLE:
            return
        right = [trigger for trigger in triggers if crowd and _right(trigger, scenario)]
        self.false += len(triggers) - len(right)
        if crowd:
            self.unreported += not right
            at_ms = min((trigger.at_ms for trigger in right), default=LENGTH_MS)
            self.delays.append(max(0.0, (at_ms - crowd.hundredth_ms) / PANE_MS))


def run(seeds: tuple[int, ...] = SEEDS) -> Report:
    """Figures delay_slides and false_triggers, of each scenario and of all, of both spec rules together and of ours.

    Raises:
        BrokenConfiguration: the trace is absent.
    """
    arrivals = read_arrivals(data_file(ARRIVALS))
    report = Report("focus")
    scores: dict[str, dict[str, Score]] = {}
    for name in SCENARIOS:
        scores[name] = {"spec": Score(), "stoker": Score()}
        for seed in seeds:
            scenario = generate(name, arrivals, seed)
            scores[name]["spec"].add(scenario, list(spec_triggers(scenario.events)))
            found = list(tuned_findings(scenario.events))
            own = scores[name]["stoker"]
            own.add(scenario, [trigger for trigger, _ in found if trigger])
            own.machines_ms += [each.at_ms for _, each in found if each.why == "regular_gaps"][:1]
        _show(report, name, scores[name])
    for rule in ("spec", "stoker"):
        all_own = [score[rule] for score in scores.values()]
        goals = (at_most(1), at_most(0)) if rule == "stoker" else (None, None)
        delay = max(delay for score in all_own for delay in score.delays)
        report.add(Figure(f"delay_slides.{rule}", delay, "slides", goal=goals[0]))
        report.add(Figure(f"false_triggers.{rule}", sum(score.false for score in all_own), "", goal=goals[1]))
    return report


def spec_triggers(events: Events) -> Iterator[Trigger]:
    """What `entropy_only` or `should_preheat` reports at the ends of minutes, each tenant for itself."""
    for tenant, queries, _, at_ms in _by_tenant(events):
        history: list[float] = []
        for minute, asked in _spans(at_ms, MINUTE_MS, queries):
            counts = Counter(asked.tolist())
            # A minute without requests breaks the row of minutes, as in analytics.minutes.
            history = [*history, EntropySums.of(counts.values()).entropy_bits] if counts else []
            qps = {str(query): times / (MINUTE_MS / 1000) for query, times in counts.items()}
            named = should_preheat(history, qps)
            if not named and entropy_only(history):
                named = hottest(qps, 50)
            if named:
                yield Trigger((minute + 1) * MINUTE_MS, tenant, frozenset(map(int, named)))


def tuned_findings(events: Events) -> Iterator[tuple[Trigger | None, Finding]]:
    """What the job's focus operator finds, slide by slide, each tenant for itself; a trigger where it is a crowd."""
    for tenant, queries, users, at_ms in _by_tenant(events):
        focus = ScopeFocus(FocusConfig(CrowdConfig(pane_ms=PANE_MS)), MemoryMapStore())
        for pane, asked, by, at in _spans(at_ms, PANE_MS, queries, users + 1, at_ms):
            if len(at):
                rows = AskedRows("gpu", "", "", _rows(asked, by, at), LEADS)
                focus.on_asked(Asked(str(tenant), pane, (pane + 1) * PANE_MS, (rows,)))
            for dimension, finding in focus.slide(pane):
                unit = FAMILY if dimension == "prefix_family" else 1
                named = frozenset(int.from_bytes(key, "big") // unit * unit for key, _ in finding.keys)
                yield Trigger(finding.at_ms, tenant, named) if finding.triggers else None, finding


def _rows(queries: Column, users: Column, at_ms: Column) -> bytes:
    rows = np.zeros(len(at_ms), dtype=_ROW)
    rows["at_ms"], rows["user"], rows["low0"] = at_ms, users, queries
    # No hash is zero.
    rows["low1"], rows["low2"] = queries // SYSTEM * SYSTEM + 1, queries // FAMILY * FAMILY + 2
    return rows.tobytes()


def _by_tenant(events: Events) -> Iterator[tuple[int, Column, Column, Column]]:
    for tenant in np.unique(events.tenants).tolist():
        own = events.tenants == tenant
        yield tenant, events.queries[own], events.users[own], events.at_ms[own]


def _spans(at_ms: Column, length_ms: int, *columns: Column) -> Iterator[tuple[Any, ...]]:
    """Columns cut into spans of equal length, the quiet ones too."""
    for number in range(LENGTH_MS // length_ms):
        start, end = np.searchsorted(at_ms, (number * length_ms, (number + 1) * length_ms))
        yield number, *(column[start:end] for column in columns)


def _right(trigger: Trigger, scenario: Scenario) -> bool:
    """Whether a crowd's trigger comes while it lasts or is still in the window, and names what it asks for."""
    crowd = scenario.crowd
    return (
        crowd is not None
        and trigger.tenant == crowd.tenant
        and crowd.begins_ms < trigger.at_ms <= crowd.ends_ms + MINUTE_MS
        and bool(trigger.queries & crowd.queries)
    )


def _show(report: Report, name: str, scores: dict[str, Score]) -> None:
    for rule, score in scores.items():
        if score.delays:
            report.add(Figure(f"{name}.delay_slides.{rule}", max(score.delays), "slides", goal=_goal(rule, 1)))
            report.add(Figure(f"{name}.unreported.{rule}", score.unreported, f"of {len(score.delays)}"))
        if name in UNDECIDABLE:
            report.add(Figure(f"{name}.triggers.{rule}", score.triggers))
            if score.machines_ms:
                slides = (max(score.machines_ms) - BEGINS_MS) / PANE_MS
                report.add(Figure(f"{name}.told_apart_slides.{rule}", slides, "slides"))
        else:
            report.add(Figure(f"{name}.false_triggers.{rule}", score.false, goal=_goal(rule, 0)))


def _goal(rule: str, bound: float) -> Goal | None:
    return at_most(bound) if rule == "stoker" else None
