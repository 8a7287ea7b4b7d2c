"""The bench of scores, in a short form."""

from __future__ import annotations

from stoker.bench.score import run


def test_it_measures_every_figure_and_keeps_what_the_naive_sort_keeps() -> None:
    figures = {figure.name: figure for figure in run(events=4_000).figures}
    assert set(figures) == {"touch_us", "tick_ms", "tick_ms.tuned"}
    assert figures["tick_ms"].baseline is not None
    assert all(figure.value >= 0 for figure in figures.values())
