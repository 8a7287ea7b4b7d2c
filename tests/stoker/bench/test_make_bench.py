"""`make bench` runs what `stoker bench` knows."""

from __future__ import annotations

import re
from pathlib import Path

from stoker.commands.bench import BENCHES


def test_make_bench_runs_every_bench_once() -> None:
    makefile = (Path(__file__).parents[3] / "Makefile").read_text()
    [listed] = re.findall(r"^BENCHES := (.+)$", makefile, re.MULTILINE)
    assert sorted(listed.split()) == sorted(BENCHES)
