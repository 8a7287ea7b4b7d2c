"""The bench of clusters, in a short form over drawn vectors."""

from __future__ import annotations

import numpy as np
import pytest

import stoker.bench.cluster as bench
from stoker.bench import river_baselines
from stoker.bench.figures import Figure

pytest.importorskip("sklearn.cluster")


def drawn(count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    source = np.random.default_rng(3)
    topics = source.normal(size=(20, 16))
    return (topics[source.integers(0, 20, size=count)] + 0.3 * source.normal(size=(count, 16))).astype(np.float32)


def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, Figure]:
    monkeypatch.setattr(bench, "questions", drawn)
    return {figure.name: figure for figure in bench.run(events=1_200).figures}


def test_it_measures_every_figure_and_its_groups_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("river")
    figures = measured(monkeypatch)
    assert set(figures) == {
        *("adjusted_rand", "core_flags_equal", "vs_sklearn", "vs_dbstream"),
        *("unique_events_per_s", "stride_p99_ms.unique", "repeat_events_per_s", "stride_p99_ms.repeat"),
    }
    assert figures["adjusted_rand"].value == figures["core_flags_equal"].value == 1.0
    assert min(figures["vs_sklearn"].value, figures["vs_dbstream"].value) > 0


def test_where_river_is_absent_it_says_so_and_measures_the_rest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(river_baselines, "installed", lambda: False)
    figures = measured(monkeypatch)
    assert "vs_dbstream" not in figures
    assert figures["vs_sklearn"].value > 0
    assert "vs_dbstream: river is not installed" in capsys.readouterr().out


def test_requests_repeat_by_a_law_of_their_own() -> None:
    asked = bench.zipf(2_000, 500)
    assert len(asked) == 2_000
    assert 0 <= asked.min() <= asked.max() < 500
    assert np.bincount(asked).argmax() == 0
