"""`stoker demo` as a person runs it: to its end, interrupted, and with a part that dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker.stack.paths import PROJECT, StateFolder
from stoker.stack.process import marked

DEADLINE_S = 600.0
"""A busy machine needs minutes for what takes half of one on a quiet machine."""


class Demo:
    """A demo in a process of its own, in a folder of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.printed = folder / "printed"
        with self.printed.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-m", "stoker.cli", "demo", "--seed", "7", *arguments],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(PROJECT)},
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def wait_for(self, text: str) -> None:
        """Until it has printed `text`."""
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.printed.read_text():
            assert self.process.poll() is None, self.printed.read_text()
            assert time.monotonic() < deadline, self.printed.read_text()
            time.sleep(0.2)

    def exit_code(self) -> int:
        """Wait for the end."""
        return self.process.wait(DEADLINE_S)

    @property
    def state(self) -> Path:
        """Folder of its stack."""
        return next((self.folder / ".stoker" / "demo").iterdir())

    def left(self) -> list[int]:
        """Processes of its stack that still live."""
        folders = (self.folder / ".stoker" / "demo").glob("*")
        return [pid for folder in folders for pid in marked(StateFolder(folder))]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """Starts demos and ends what is left of them."""
    started: list[Demo] = []

    def start(*arguments: str) -> Demo:
        started.append(Demo(tmp_path, *arguments))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.send_signal(signal.SIGTERM)
            one.process.wait(120)


@pytest.mark.service
@pytest.mark.slow
def test_a_short_demo_accounts_for_every_event_and_leaves_nothing(demo: Callable[..., Demo], tmp_path: Path) -> None:
    run = demo("--minutes", "0.7", "--lru-minutes", "0.2", "--json", "figures.json")
    assert run.exit_code() == 0, run.printed.read_text()
    figures = json.loads((tmp_path / "figures.json").read_text())
    parts = ("events_counted", "second_phase", "not_demand", "late", "duplicates", "dead_letters")
    assert figures["events_in"] == sum(figures[part] for part in parts) > 1_000
    for part in ("events_counted", "second_phase", "not_demand", "duplicates", "dead_letters"):
        assert figures[part] > 0, part
    assert figures["commands"].get("prefix", 0) > 0
    assert figures["commands"].get("embedding", 0) > 0
    assert figures["outcomes"].get("applied", 0) > 0
    assert figures["outcomes"].get("held_out", 0) > 0
    assert sum(figures["ttft_ms"][group]["n"] for group in ("warmed", "held_out", "rest")) > 500
    assert "balances" in run.printed.read_text()
    assert run.left() == []
    assert not (tmp_path / ".stoker" / "demo").exists()


@pytest.mark.service
@pytest.mark.slow
def test_with_warming_off_nothing_is_applied_and_no_effect_is_claimed(
    demo: Callable[..., Demo], tmp_path: Path
) -> None:
    run = demo("--mode", "off", "--minutes", "0.35", "--lru-minutes", "0", "--json", "figures.json")
    assert run.exit_code() == 0, run.printed.read_text()
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["outcomes"]["shadow"] > 0
    assert set(figures["outcomes"]) <= {"shadow", "held_out"}
    assert figures["effect"]["tokens"]["verdict"] != "help"
    printed = " ".join(run.printed.read_text().split())
    assert "every command a shadow" in printed
    for claim in ("arming helped", "arming did harm", "got faster"):
        assert claim not in printed


@pytest.mark.service
@pytest.mark.slow
@pytest.mark.long
def test_a_bad_policy_costs_tokens(demo: Callable[..., Demo], tmp_path: Path) -> None:
    run = demo("--mode", "bad", "--minutes", "0.7", "--lru-minutes", "0", "--json", "figures.json")
    assert run.exit_code() == 0, run.printed.read_text()
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["outcomes"]["applied"] > 0
    assert figures["effect"]["tokens"]["value"] < 0


@pytest.mark.service
def test_an_interrupted_demo_ends_with_130_and_leaves_nothing(demo: Callable[..., Demo], tmp_path: Path) -> None:
    run = demo("--lru-minutes", "0")
    run.wait_for("starting the Flink job")
    run.process.send_signal(signal.SIGINT)
    assert run.exit_code() == 130, run.printed.read_text()
    assert run.left() == []
    assert not (tmp_path / ".stoker" / "demo").exists()


@pytest.mark.service
@pytest.mark.slow
def test_a_part_that_dies_is_named_with_its_log(demo: Callable[..., Demo]) -> None:
    run = demo("--minutes", "5")
    run.wait_for("playing")
    record = json.loads((run.state / "run" / "engine-r1.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    assert run.exit_code() == 3, run.printed.read_text()
    text = run.printed.read_text()
    assert "engine-r1 died" in text
    log = run.state / "logs" / "engine-r1.log"
    assert log.is_file()
    assert str(log) in text
    assert run.left() == []
