"""The figures that every bench prints and writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stoker.bench.figures import Figure, Report, at_least, at_most


def test_a_goal_on_the_value_is_met_or_missed() -> None:
    assert Figure("x", 2.0, goal=at_least(1.0)).verdict == "met"
    assert Figure("x", 2.0, goal=at_most(1.0)).verdict == "missed"
    assert Figure("x", 2.0).verdict == "-"


def test_a_goal_on_the_ratio_needs_a_baseline() -> None:
    assert Figure("x", 6.0, "s", baseline=10.0, goal=at_least(0.5, "ratio")).ok is True
    assert Figure("x", 6.0, "s", goal=at_least(0.5, "ratio")).ok is False


def test_the_document_has_the_fields_of_the_design(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("demo")
    report.add(Figure("rate", 1500.0, "1/s", baseline=1000.0, goal=at_least(2.0, "ratio")))
    report.write(tmp_path / "out.json")
    document = json.loads((tmp_path / "out.json").read_text())
    assert set(document) == {"name", "machine", "figures"}
    assert document["figures"] == [
        {
            "name": "rate",
            "value": 1500.0,
            "unit": "1/s",
            "baseline": 1000.0,
            "ratio": 1.5,
            "goal": ">= 2 of the baseline",
            "ok": False,
        }
    ]
    assert not report.ok
    line = capsys.readouterr().out
    assert "1,500" in line
    assert line.rstrip().endswith("missed")
