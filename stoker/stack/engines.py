"""Engine simulators of the embedded stack: one process per replica (`python -m stoker.simulator`)."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import httpx

from stoker.stack import ports
from stoker.stack.paths import PROJECT, StateFolder
from stoker.stack.process import Process

READY_S = 60.0
MODEL = "tiny"
"""Served model name of the simulators, unless their flags say another."""


@dataclass(frozen=True)
class EngineConfig:
    """One simulated replica.

    Attributes:
        name: of the replica, as requests and residency name it.
        port: of its HTTP API.
        events_port: of its KV events; None turns them off. The replay socket takes the port after it.
        pool: pool it belongs to; the executor's settings get it.
        flags: further flags of `python -m stoker.simulator`.
    """

    name: str
    port: int
    events_port: int | None = None
    pool: str = "main"
    flags: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """Base URL of its API."""
        return f"http://{ports.LOOPBACK}:{self.port}"

    @property
    def command(self) -> list[str]:
        """What starts it."""
        events = [] if self.events_port is None else ["--events-port", str(self.events_port)]
        replay = [] if self.events_port is None else ["--replay-port", str(self.events_port + 1)]
        named = ["--name", self.name, "--port", str(self.port)]
        return [sys.executable, "-m", "stoker.simulator", *named, *events, *replay, *self.flags]


class Engine:
    """The process of one replica.

    Args:
        config: the replica.
        state: the stack's folder.
    """

    def __init__(self, config: EngineConfig, state: StateFolder) -> None:
        self.config = config
        self.process = Process(f"engine-{config.name}", state)

    def start(self, ready_s: float = READY_S) -> None:
        """Start and wait until it answers; harmless when it runs.

        Raises:
            StackFault: port taken, or it did not come up.
        """
        self.launch()
        self.process.wait_ready(self.ready, ready_s)

    def launch(self) -> None:
        """Start without waiting, so that several come up together."""
        if self.process.pid is None:
            self.process.end_leftovers()
            ports.demand_free(self.config.port, f"engine {self.config.name}", "--engine-port")
            self.process.start(self.config.command, {"PYTHONPATH": str(PROJECT)})

    def stop(self) -> None:
        """End it; harmless when it does not run."""
        self.process.stop(grace_s=5.0)

    def ready(self) -> bool:
        """Whether it answers /health."""
        try:
            return httpx.get(f"{self.config.url}/health", timeout=2.0, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False
