"""A simulator in a process of its own: for the local stack, benches and tests."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import StackFault

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class RunningSimulator:
    """A simulator that listens.

    Args:
        url: base URL of its HTTP API.
        incarnation: differs at each start.
        events, replay: ZMQ endpoints of its KV events, None without.
    """

    url: str
    incarnation: str
    events: str | None
    replay: str | None
    process: subprocess.Popen[str]

    @property
    def cpu_s(self) -> float:
        """Processor time it has used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start_simulator(*flags: str, port: int = 0) -> RunningSimulator:
    """Start one and wait until it listens.

    Args:
        flags: as `python -m stoker.simulator` takes them.
        port: 0 takes a free one.

    Raises:
        StackFault: it ended or did not listen within 30 s; the message has its own words.
    """
    command = [sys.executable, "-m", "stoker.simulator", "--port", str(port), *flags]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(_ROOT), os.environ.get("PYTHONPATH", "")))}
    # A file and not a pipe: nobody reads what it writes while it runs.
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, cwd=_ROOT
        )
        line = _first_line(process)
        if not line:
            stop_process(process)
            errors.seek(0)
            words = errors.read().strip() or f"no word within {START_TIMEOUT_S:g} s"
            raise StackFault(f"the simulator did not start: {words}")
    started = json.loads(line)
    return RunningSimulator(
        started["url"], started["incarnation"], started.get("events"), started.get("replay"), process
    )


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + START_TIMEOUT_S
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            if selector.select(timeout=0.1):
                return process.stdout.readline()
            if process.poll() is not None:
                return ""
    return ""


def stop_process(process: subprocess.Popen[str]) -> None:
    """End it: by SIGTERM, and by SIGKILL if that is ignored. Ending it twice is harmless."""
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextlib.contextmanager
def simulator(*flags: str) -> Iterator[RunningSimulator]:
    """A simulator that ends with the block."""
    running = start_simulator(*flags)
    try:
        yield running
    finally:
        stop_process(running.process)
