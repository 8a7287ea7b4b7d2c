"""`stoker gain` as a stranger would call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from schemas import BrokenConfiguration
from stoker.cli import build
from tests.stoker.gain.test_counters import PAGE

RUN = CliRunner()


def test_events_give_a_waterfall_a_verdict_and_figures(tmp_path: Path) -> None:
    events, figures = tmp_path / "events.jsonl", tmp_path / "gain.json"
    wrote = RUN.invoke(
        build(), ["replay", "--minutes", "0.5", "--to", str(events), "--capacity-tokens", "20000", "--seed", "3"]
    )
    assert wrote.exit_code == 0, wrote.output
    gained = RUN.invoke(build(), ["gain", "--events", str(events), "--json", str(figures)])
    assert gained.exit_code == 0, gained.output
    for row in ("now, as measured", "Stoker", "perfect eviction (Belady)", "memory without end", "for the first time"):
        assert row in gained.output
    assert "Don't adopt" in gained.output or "Worth a trial" in gained.output
    document = json.loads(figures.read_text())
    shares = {f["name"]: f["value"] for f in document["figures"] if f["name"].startswith("hit_share.")}
    assert 0 < shares["hit_share.now"] < shares["hit_share.belady"] <= shares["hit_share.infinite"] < 1
    assert document["adopt"] == (next(f for f in document["figures"] if f["name"] == "gain_points")["value"] >= 3)


def test_counters_give_now_and_an_upper_bound(tmp_path: Path) -> None:
    page, figures = tmp_path / "metrics.txt", tmp_path / "gain.json"
    page.write_text(PAGE)
    told = RUN.invoke(build(), ["gain", "--metrics", str(page), "--json", str(figures)])
    assert told.exit_code == 0, told.output
    assert "25.0%" in told.output
    assert "At most 75.0 points to gain" in told.output
    assert json.loads(figures.read_text())["figures"][0] == {
        "name": "hit_share.now",
        "value": 0.25,
        "unit": "",
        "baseline": None,
        "ratio": None,
        "goal": None,
        "ok": None,
    }
    piped = RUN.invoke(build(), ["gain", "--metrics", "-"], input=PAGE)
    assert "upper bound" in piped.output


@pytest.mark.parametrize(
    "arguments", [[], ["--events", "a", "--metrics", "b"], ["--events", "absent.jsonl"], ["--metrics", "absent.txt"]]
)
def test_wrong_use_is_a_sentence(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = RUN.invoke(build(), ["gain", *arguments])
    assert isinstance(told.exception, BrokenConfiguration)
