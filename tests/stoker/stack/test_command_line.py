"""A stack, a job and its savepoint by nothing but the commands that a person types."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.stack.paths import PROJECT, StateFolder
from stoker.stack.process import marked
from stoker.stack.stack import StackConfig

pytestmark = [pytest.mark.service, pytest.mark.slow]

DEADLINE_S = 900.0
"""Of one command; a job that starts on an overloaded machine takes minutes."""
MODEL = (
    "model",
    "llama-4",
    "--scope",
    "acme",
    "--pool",
    "main",
    "--replaces",
    "llama-3",
    "--at",
    "2026-12-01T09:00:00Z",
)


class Person:
    """Somebody at a shell in an empty folder.

    Args:
        folder: where the commands are typed.
        encoder: exported model, for the job.
    """

    def __init__(self, folder: Path, encoder: Path) -> None:
        self._folder = folder
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(PROJECT),
            "STOKER_ENCODER__MODEL": str(encoder),
            "COLUMNS": "200",
        }

    def types(self, *words: object, exit_code: int = 0) -> str:
        """Runs `stoker` with some words and returns all that it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "stoker.cli", *map(str, words)],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == exit_code, f"{words}: {done.returncode}\n{done.stdout}"
        assert "Traceback" not in done.stdout
        return done.stdout


def free_ports() -> list[object]:
    """Flags of `stack up` that clash with nothing."""
    config = StackConfig.on_free_ports(engines=1)
    engine = config.engines[0]
    ports = ("--kafka-port", config.kafka.port, "--kafka-controller-port", config.kafka.controller_port)
    more = ("--redis-port", config.redis.port, "--engine-port", engine.port, "--events-port", engine.events_port)
    return [*ports, *more, "--engines", 1]


def test_up_submit_announce_stop_and_on_from_the_savepoint(
    flink_state: StateFolder, tmp_path: Path, encoder_model: Path
) -> None:
    person = Person(tmp_path, encoder_model)
    there = ("--state", flink_state.root)
    assert "the stack is up" in person.types("stack", "up", *free_ports(), *there)
    told = ("--config", flink_state.root / "stoker.toml")
    assert "no job was submitted here" in person.types("jobs", *there)
    assert "no application warmup" in person.types("stop", "warmup", *there, exit_code=2)

    assert "warmup runs with parallelism 1: http://" in person.types("submit", "warmup", *there)
    assert "runs already: stop it first" in person.types("submit", "warmup", *there, exit_code=2)
    assert running(person.types("jobs", *there))

    assert "announced for 2026-12-01T09:00:00" in person.types("announce", *MODEL, *told)
    assert "announced already" in person.types("announce", *MODEL, *told), "read back from Kafka"

    savepoint = Path(person.types("stop", "warmup", "--savepoint", *there).split()[-1])
    assert (savepoint / "_metadata").is_file()
    assert "not running" in person.types("jobs", *there)
    assert "did not run" in person.types("stop", "warmup", *there)

    person.types("submit", "warmup", "--from-savepoint", savepoint, *there)
    assert running(person.types("jobs", *there))
    assert "the stack is down and its data removed" in person.types("stack", "down", "--data", *there)
    assert marked(flink_state) == []
    assert not flink_state.root.exists()


def running(printed: str) -> bool:
    """Whether `stoker jobs` shows the job with all of its tasks at work, never restarted."""
    row = next(line for line in map(str.split, printed.splitlines()) if line[:1] == ["warmup"])
    at_work, tasks = row[2].split("/")
    return row[1] == "RUNNING" and at_work == tasks != "0" and row[3] == "0"
