"""The bench of entropy, in a short form."""

from __future__ import annotations

import pytest

from stoker.bench.entropy import run, zipf

pytest.importorskip("scipy.stats")


def test_it_measures_every_figure_and_keeps_its_error() -> None:
    figures = {figure.name: figure for figure in run(events=6_000).figures}
    assert set(figures) == {"us_per_event", "us_per_event.batch_1024", "us_per_event.single", "max_error"}
    assert figures["max_error"].ok
    assert all(figure.value >= 0 for figure in figures.values())
    assert figures["us_per_event"].baseline is not None


def test_the_same_seed_draws_the_same_requests() -> None:
    assert zipf(500).tolist() == zipf(500).tolist()
    assert len(set(zipf(500).tolist())) > 100
