"""The bench of a tick, in a short form."""

from __future__ import annotations

import pytest

from stoker.bench import memory_model
from stoker.bench.plan import run


def test_it_measures_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_model, "ROUNDS", 12)
    figures = {figure.name: figure for figure in run(events=400).figures}
    assert {"tick_ms", "tick_ms.rich", "tick_ms.between", "fragmentation", "failed_allocations.total"} <= set(figures)
    assert figures["tick_ms.worst"].value >= max(figures["tick_ms"].value, figures["tick_ms.between"].value)
    for name in ("tick_ms", "tick_ms.rich", "fragmentation", "failed_allocations.total"):
        assert figures[name].baseline is not None
    assert figures["commands.rich"].value > figures["commands"].value > 0
    assert 0 <= figures["fragmentation"].value < 1


@pytest.mark.parametrize("memory_of", [memory_model.with_view, memory_model.without_view])
def test_the_same_seed_plays_the_same_hour(memory_of, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_model, "ROUNDS", 30)
    assert memory_model.play(memory_of, 3) == memory_model.play(memory_of, 3)


def test_with_the_view_kv_finds_room_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_model, "ROUNDS", 80)
    ours, _ = memory_model.play(memory_model.with_view, 1)
    apart, _ = memory_model.play(memory_model.without_view, 1)
    assert ours.kv + ours.growth < apart.kv + apart.growth
