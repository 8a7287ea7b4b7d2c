"""The bench of entropy, in a short form."""

from __future__ import annotations

import pytest

from stoker.bench import river_baselines
from stoker.bench.entropy import run, zipf

pytest.importorskip("scipy.stats")


def test_it_measures_every_figure_and_keeps_its_error() -> None:
    figures = {figure.name: figure for figure in run(events=6_000).figures}
    assert set(figures) == {"us_per_event", "us_per_event.batch_1024", "us_per_event.single", "max_error"}
    assert figures["max_error"].ok
    assert all(figure.value >= 0 for figure in figures.values())
    assert figures["us_per_event"].baseline is not None
    assert (figures["us_per_event.single"].baseline is None) == (not river_baselines.installed())


def test_where_river_is_absent_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(river_baselines, "installed", lambda: False)
    assert {figure.name: figure.baseline for figure in run(events=6_000).figures}["us_per_event.single"] is None
    assert "river is not installed" in capsys.readouterr().out


def test_the_same_seed_draws_the_same_requests() -> None:
    assert zipf(500).tolist() == zipf(500).tolist()
    assert len(set(zipf(500).tolist())) > 100
