"""What every bench, backtest and demo prints: figures beside their baseline and goal, and the same as JSON (DESIGN §8).

A missed goal is shown as missed; it is the caller's business (`--strict`) whether that changes the exit status.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Verdict = Literal["met", "missed", "-"]


@dataclass(frozen=True)
class Goal:
    """A bound that a figure should keep.

    Args:
        sense: `>=` or `<=`.
        bound: in the figure's own unit, or without a unit where `of` is `ratio`.
        of: what is compared, the figure's value or its ratio to the baseline.
    """

    sense: Literal[">=", "<="]
    bound: float
    of: Literal["value", "ratio"] = "value"

    def __str__(self) -> str:
        return f"{self.sense} {number(self.bound)}" + (" of the baseline" if self.of == "ratio" else "")


def at_least(bound: float, of: Literal["value", "ratio"] = "value") -> Goal:
    """The goal of a figure where more is better."""
    return Goal(">=", bound, of)


def at_most(bound: float, of: Literal["value", "ratio"] = "value") -> Goal:
    """The goal of a figure where less is better."""
    return Goal("<=", bound, of)


@dataclass(frozen=True)
class Figure:
    """One measured number.

    Args:
        name: from the list in BENCHMARKS.md, lower case with underscores and dots.
        value: the measurement.
        unit: as printed, "" for a pure number.
        baseline: the same quantity of what it is compared with, measured in the same run; None where there is none.
        goal: the bound it should keep, None where the figure only informs.
    """

    name: str
    value: float
    unit: str = ""
    baseline: float | None = None
    goal: Goal | None = None

    @property
    def ratio(self) -> float | None:
        """Value over baseline; None without a baseline, or where the baseline is zero."""
        return self.value / self.baseline if self.baseline else None

    @property
    def ok(self) -> bool | None:
        """Whether the goal is kept; None without a goal. A goal on a ratio that could not be formed is missed."""
        if self.goal is None:
            return None
        measured = self.value if self.goal.of == "value" else self.ratio
        if measured is None:
            return False
        return measured >= self.goal.bound if self.goal.sense == ">=" else measured <= self.goal.bound

    @property
    def verdict(self) -> Verdict:
        """The last column of a printed line."""
        return "-" if self.ok is None else "met" if self.ok else "missed"

    def line(self) -> str:
        """Name, value, unit, baseline, ratio, goal, verdict, in columns."""
        baseline = "-" if self.baseline is None else number(self.baseline)
        ratio = "-" if self.ratio is None else f"{self.ratio:.3f}"
        goal = "-" if self.goal is None else str(self.goal)
        value = number(self.value)
        return f"{self.name:<36} {value:>14} {self.unit:<12} {baseline:>14} {ratio:>8} {goal:<26} {self.verdict}"

    def as_json(self) -> dict[str, Any]:
        """The object of DESIGN §8."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "baseline": self.baseline,
            "ratio": self.ratio,
            "goal": None if self.goal is None else str(self.goal),
            "ok": self.ok,
        }


@dataclass
class Report:
    """The figures of one run, with the machine that they were measured on."""

    name: str
    figures: list[Figure] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=lambda: describe_machine())

    def add(self, figure: Figure) -> Figure:
        """Append a figure and print its line at once, so that a long run shows what it has."""
        self.figures.append(figure)
        print(figure.line(), flush=True)
        return figure

    @property
    def ok(self) -> bool:
        """False if any goal was missed."""
        return all(figure.ok is not False for figure in self.figures)

    def as_json(self) -> dict[str, Any]:
        """The document of DESIGN §8."""
        return {"name": self.name, "machine": self.machine, "figures": [figure.as_json() for figure in self.figures]}

    def write(self, path: Path | None) -> None:
        """Write the JSON document; nothing happens without a path."""
        if path is not None:
            path.write_text(json.dumps(self.as_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def number(value: float) -> str:
    """Four significant digits below a thousand, separated thousands above."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def describe_machine() -> dict[str, Any]:
    """Processor, cores, memory and Python of this machine. No host name and no path."""
    info: dict[str, Any] = {"system": platform.system(), "arch": platform.machine()}
    info["python"] = platform.python_version()
    info["cores"] = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    info["load_1min"] = round(os.getloadavg()[0], 2)
    cpuinfo, meminfo = Path("/proc/cpuinfo"), Path("/proc/meminfo")
    if cpuinfo.exists():
        models = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        info["cpu"] = models[0] if models else "unknown"
    if meminfo.exists():
        info["memory_gib"] = round(int(meminfo.read_text().split()[1]) / 2**20, 1)
    return info
