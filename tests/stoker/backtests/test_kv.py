"""Backtest kv on the first minutes of the trace, and what it does not promise."""

from __future__ import annotations

from pathlib import Path

from stoker.backtests.data import CONVERSATION
from stoker.backtests.kv import Trace, judge
from stoker.replay.mooncake import read_trace

KINDS = ("lru", "spec", "hotness", "stoker", "stoker_warm", "belady", "infinite")


def test_every_cache_lies_between_nothing_and_its_bounds(data_dir: Path) -> None:
    trace = Trace.of(read_trace(data_dir / CONVERSATION)[:700])
    report = judge(trace, {"small": 200_000, "endless": 50_000_000})
    figures = {figure.name: figure for figure in report.figures}
    small = {kind: figures[f"hit_rate.{kind}.small"].value for kind in KINDS}
    assert 0 < small["lru"] <= small["belady"] <= small["infinite"]
    assert all(small[kind] <= small["belady"] for kind in ("spec", "hotness", "stoker"))
    assert small["stoker_warm"] < small["infinite"]
    assert len({figures[f"hit_rate.{kind}.endless"].value for kind in KINDS}) == 1
    assert figures["hit_rate.stoker_warm.small"].goal is not None
    for name in ("accuracy", "coverage", "lateness", "pollution", "moved"):
        assert 0 <= figures[f"{name}.small"].value <= 1
    assert figures["moved.small"].ok is True
