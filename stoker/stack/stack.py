"""The embedded stack as one object: up, down, status, endpoints. Tests, the demo and the command line use it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from schemas.errors import BrokenConfiguration
from schemas.topics import TOPICS, Topic, at_time_scale
from stoker.stack import flink, ports
from stoker.stack.engines import Engine, EngineConfig
from stoker.stack.flink_config import FlinkConfig
from stoker.stack.flink_session import FlinkSession, SessionConfig
from stoker.stack.kafka import Kafka, KafkaConfig
from stoker.stack.paths import DEFAULT_STATE, StateFolder
from stoker.stack.process import Process, marked, sweep
from stoker.stack.redis import Redis, RedisConfig
from stoker.stack.topics import broker_ready, create_topics


@dataclass(frozen=True)
class StackConfig:
    """What the stack consists of. Defaults are the ports that `stoker.toml` expects when it says nothing.

    Attributes:
        kafka, redis: the brokers' and Redis's settings.
        engines: simulated replicas.
        session: a Flink session cluster, if wanted.
        topic_prefix: put before every topic.
        time_scale: how much faster than the calendar its job, executor and replay run.
    """

    kafka: KafkaConfig = field(default_factory=KafkaConfig)
    redis: RedisConfig = field(default_factory=RedisConfig)
    engines: tuple[EngineConfig, ...] = ()
    session: SessionConfig | None = None
    topic_prefix: str = ""
    time_scale: float = 1.0

    @classmethod
    def on_free_ports(
        cls, engines: int = 0, engine_flags: tuple[str, ...] = (), session: bool = False, time_scale: float = 1.0
    ) -> StackConfig:
        """A stack for a test: free ports everywhere, replicas r0, r1, ... with KV events."""
        taken = ports.free_ports(5 + engines)
        replicas = tuple(
            EngineConfig(f"r{index}", taken[5 + index], ports.free_pair(), flags=engine_flags)
            for index in range(engines)
        )
        return cls(
            kafka=KafkaConfig(taken[0], taken[1], heap_mb=384),
            redis=RedisConfig(taken[2]),
            engines=replicas,
            session=SessionConfig(1, FlinkConfig(taken[3], taken[4])) if session else None,
            time_scale=time_scale,
        )


@dataclass(frozen=True)
class ServiceStatus:
    """One line of `stoker stack status`.

    Attributes:
        name: of the process.
        pid: None when it does not run.
        ready: whether it answers.
        endpoint: what clients connect to.
    """

    name: str
    pid: int | None
    ready: bool
    endpoint: str


class Stack:
    """Kafka with all topics, Redis, simulated engines and, if wanted, a Flink session cluster, in one state folder.

    Args:
        state: the folder, `.stoker` in the working directory by default. A folder holds one stack.
        config: what it consists of; None takes what the folder remembers, else the defaults.
    """

    def __init__(self, state: StateFolder | Path | str = DEFAULT_STATE, config: StackConfig | None = None) -> None:
        self.state = state if isinstance(state, StateFolder) else StateFolder.at(state)
        self._remembered = self._read()
        self.config = config or self._remembered or StackConfig()
        self.kafka = Kafka(self.config.kafka, self.state)
        self.redis = Redis(self.config.redis, self.state)
        self.engines = [Engine(engine, self.state) for engine in self.config.engines]
        self.session = FlinkSession(self.config.session, self.state) if self.config.session else None

    def up(self) -> None:
        """Start what does not run, make missing topics, wait until all is ready. Twice is harmless.

        What this call started is ended again when it fails or is interrupted.

        Raises:
            BrokenConfiguration: a stack with other settings runs in this folder.
            StackFault: a part is missing, a port is taken, or something did not come up.
        """
        with self._lock():
            before = {process.name for process in self._processes() if process.pid is not None}
            if self._remembered not in (None, self.config) and marked(self.state):
                raise BrokenConfiguration(
                    f"a stack with other settings runs in {self.state.root}: `stoker stack down` first"
                )
            self._write()
            try:
                self._start()
            except BaseException:  # Ctrl-C too
                for process in self._processes():
                    if process.name not in before:
                        process.stop(grace_s=5.0)
                raise

    def _start(self) -> None:
        for engine in self.engines:
            engine.launch()
        self.redis.start()
        self.kafka.start()
        create_topics(self.kafka.bootstrap, self.config.topic_prefix, self.topics)
        for engine in self.engines:
            engine.start()
        if self.session is not None:
            self.session.start()

    def down(self, data: bool = False) -> None:
        """End everything that was ever started in this folder, Flink applications and executors too.

        Args:
            data: also remove the folder: topics, Redis's data, checkpoints, savepoints and logs.
        """
        with self._lock():
            for application in flink.applications(self.state):
                application.stop()
            if self.session is not None:
                self.session.stop()
            for engine in self.engines:
                engine.stop()
            self.redis.stop()
            self.kafka.stop()
            sweep(self.state)
        if data:
            shutil.rmtree(self.state.root)

    def status(self) -> list[ServiceStatus]:
        """One entry per part, Flink applications included."""
        found = [
            self._entry(self.kafka.process, broker_ready(self.kafka.bootstrap), self.kafka.bootstrap),
            self._entry(self.redis.process, self.redis.ready(), self.redis.url),
        ]
        found += [self._entry(engine.process, engine.ready(), engine.config.url) for engine in self.engines]
        if self.session is not None:
            found.append(self._entry(self.session.jobmanager, self.session.ready(), self.session.rest_url))
            found += [
                self._entry(process, process.pid is not None, "one slot") for process in self.session.taskmanagers
            ]
        for application in flink.applications(self.state):
            if application.running:
                found.append(self._entry(application.jobmanager, True, application.rest_url))
        return found

    @property
    def running(self) -> bool:
        """Whether any process of this folder lives."""
        return bool(marked(self.state))

    @property
    def topics(self) -> tuple[Topic, ...]:
        """What `up` makes on the broker where it is missing."""
        return at_time_scale(TOPICS, self.config.time_scale)

    @property
    def settings_file(self) -> Path:
        """A `stoker.toml` with the endpoints of this stack, written by `up`."""
        return self.state.root / "stoker.toml"

    def environment(self) -> dict[str, str]:
        """The endpoints as settings in the environment, for the executor, jobs and replay."""
        engines = [
            {"name": engine.name, "url": engine.url, "pool": engine.pool, "events": engine.events_port is not None}
            for engine in self.config.engines
        ]
        return {
            "STOKER_TIME_SCALE": str(self.config.time_scale),
            "STOKER_KAFKA__BOOTSTRAP": self.kafka.bootstrap,
            "STOKER_KAFKA__TOPIC_PREFIX": self.config.topic_prefix,
            "STOKER_REDIS__URL": self.redis.url,
            "STOKER_EXECUTOR__ENGINES": json.dumps(engines),
        }

    def _processes(self) -> list[Process]:
        session = [self.session.jobmanager, *self.session.taskmanagers] if self.session else []
        return [self.kafka.process, self.redis.process, *(engine.process for engine in self.engines), *session]

    @staticmethod
    def _entry(process: Process, ready: bool, endpoint: str) -> ServiceStatus:
        pid = process.pid
        return ServiceStatus(process.name, pid, ready and pid is not None, endpoint)

    @property
    def _memory(self) -> Path:
        return self.state.root / "stack.json"

    def _read(self) -> StackConfig | None:
        if not self._memory.exists():
            return None
        return msgspec.json.decode(self._memory.read_bytes(), type=StackConfig)

    def _write(self) -> None:
        self._memory.write_bytes(msgspec.json.encode(self.config))
        self._remembered = self.config
        lines = ["# Written by `stoker stack up`: the endpoints of this stack."]
        lines += [f"time_scale = {self.config.time_scale}", "", "[kafka]"]
        lines += [f'bootstrap = "{self.kafka.bootstrap}"', f'topic_prefix = "{self.config.topic_prefix}"']
        lines += ["", "[redis]", f'url = "{self.redis.url}"']
        for engine in self.config.engines:
            lines += ["", "[[executor.engines]]", f'name = "{engine.name}"', f'url = "{engine.url}"']
            lines += [f'pool = "{engine.pool}"', f"events = {str(engine.events_port is not None).lower()}"]
        self.settings_file.write_text("\n".join(lines) + "\n")

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """One `up` or `down` at a time in a folder; the second waits."""
        with (self.state.root / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
