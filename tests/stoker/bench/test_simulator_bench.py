"""The simulator's bench, in its shortest form."""

from __future__ import annotations

import json
from pathlib import Path

from stoker.bench.simulator import run


def test_it_measures_and_writes(tmp_path: Path) -> None:
    report = run(events=64, rounds=1)
    report.write(tmp_path / "simulator.json")
    names = [figure["name"] for figure in json.loads((tmp_path / "simulator.json").read_text())["figures"]]
    assert names[0] == "tokens_per_s"
    assert {"tokens_per_s.16", "tokens_per_s.512"} < set(names)
    assert all(figure.value > 0 for figure in report.figures)
