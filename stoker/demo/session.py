"""The parts of one demo: stack, policies, job and executor, started in a folder of their own and ended together."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from connectors.kafka.producer import KafkaRecordProducer
from connectors.settings import KafkaSettings, RedisSettings
from jobs.settings import load_settings
from schemas import EVERY_SCOPE, Policy, StackFault, TransientFault, encode
from schemas.topics import ANNOUNCEMENTS, POLICY
from stoker.announcing import store_texts
from stoker.demo.announced import LOADER, announced, write_prices, write_weights
from stoker.demo.config import DemoConfig
from stoker.demo.unwanted import unwanted
from stoker.replay.run import Place
from stoker.stack import ports
from stoker.stack.flink import FlinkApplication, start_application
from stoker.stack.flink_config import FlinkConfig
from stoker.stack.paths import PROJECT, StateFolder, cache_folder
from stoker.stack.process import Process, start_ticks
from stoker.stack.stack import Stack, StackConfig

POOL = "main"
MODEL = "tiny"
EXECUTOR_READY_S = 60.0
CONCURRENCY = 16
"""Requests in flight. About three are; more would only queue up on a machine that is too slow."""
_OWNER = "owner"


class Session:
    """Everything that runs while a demo runs.

    Attributes:
        restarting: replicas that are down on purpose.

    Args:
        config: the demo.
    """

    def __init__(self, config: DemoConfig) -> None:
        self.config = config
        self.state = StateFolder.at(config.root / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
        (self.state.root / _OWNER).write_text(json.dumps([os.getpid(), start_ticks(os.getpid())]))
        replicas = config.profile.replicas
        stack = StackConfig.on_free_ports(replicas, config.engine_flags, time_scale=config.time_scale)
        self.stack = Stack(self.state, stack)
        self.executor = Process("executor", self.state)
        self.admin_port = ports.free_port()
        self.job: FlinkApplication | None = None
        self.restarting: set[str] = set()

    @property
    def kafka(self) -> KafkaSettings:
        """Where this demo's Kafka is."""
        return KafkaSettings(bootstrap=self.stack.kafka.bootstrap)

    @property
    def place(self) -> Place:
        """Where the gateway of this demo stands."""
        return Place(
            kafka=self.kafka,
            redis=RedisSettings(url=self.stack.redis.url),
            scopes=self.config.profile.scopes,
            pool=POOL,
            model=MODEL,
            engines={engine.config.name: engine.config.url for engine in self.stack.engines},
            time_scale=self.config.time_scale,
            concurrency=CONCURRENCY,
            adapters={name: str(self._weights(name)) for name in self.config.profile.adapters},
            keep_answers=True,
        )

    @property
    def settings_file(self) -> Path:
        """The `stoker.toml` of this demo's job and executor."""
        return self.state.root / "demo.toml"

    def start_stack(self) -> None:
        """Kafka, Redis and the replicas.

        Raises:
            StackFault: a part did not come up.
        """
        self.stack.up()
        self._write_settings()
        write_prices(self._prices)
        for name in self.config.profile.adapters:
            write_weights(self._weights(name))

    def start(self) -> Iterator[str]:
        """Stoker itself, one part after the other; yields what comes next.

        Raises:
            StackFault: a part did not come up.
        """
        self._publish_policies()
        yield "the Flink job"
        self.job = start_application(
            "warmup",
            PROJECT / "jobs" / "warmup.py",
            ["--config", str(self.settings_file)],
            state=self.state,
            config=FlinkConfig.of_job(load_settings(self.settings_file).warmup),
        )
        yield "the executor"
        command = [sys.executable, "-m", "stoker.cli", "executor", "--config", str(self.settings_file)]
        self.executor.start(command, {"PYTHONPATH": str(PROJECT)})
        self.executor.wait_ready(self._executor_ready, EXECUTOR_READY_S)

    def restart_engine(self, replica: str) -> None:
        """Ends a replica and starts it again, empty.

        Raises:
            StackFault: it did not come up.
        """
        engine = next(engine for engine in self.stack.engines if engine.config.name == replica)
        self.restarting.add(replica)
        try:
            engine.stop()
            engine.start()
        finally:
            self.restarting.discard(replica)

    def announce(self, began_ms: int) -> None:
        """Tells the planners what the workload's tenants know beforehand: adapters, a sale; in mode `bad` also junk.

        Args:
            began_ms: when the traffic begins.
        """
        now_ms = time.time_ns() // 1_000_000
        changes = announced(self.config, began_ms, self.place.adapters, now_ms)
        if self.config.mode == "bad":
            for change, text in unwanted(self.config, began_ms, now_ms, POOL, MODEL):
                store_texts(self.place.redis, change.scope, change.segments, [("system", text)], change.at_ms)
                changes.append(change)
        with KafkaRecordProducer(self.kafka, client_id="stoker-demo") as producer:
            for change in changes:
                topic = self.kafka.topic(ANNOUNCEMENTS)
                producer.send(topic, encode(change), key=change.scope.encode(), timestamp_ms=now_ms)
            producer.flush()

    def parts(self) -> list[Process]:
        """Every process that must live while the demo runs."""
        stack = [self.stack.kafka.process, self.stack.redis.process]
        engines = [engine.process for engine in self.stack.engines if engine.config.name not in self.restarting]
        stoker = [] if self.job is None else [self.job.jobmanager, *self.job.taskmanagers, self.executor]
        return [*stack, *engines, *stoker]

    def check(self) -> int:
        """Look at all parts. Returns how often the job was restarted.

        Raises:
            StackFault: a part has died, or the job has failed for good.
        """
        for process in self.parts():
            if process.pid is None:
                raise StackFault(f"{process.name} died; the end of {process.log}:\n{process.tail()}")
        if self.job is None:
            return 0
        try:
            health = self.job.health()
        except TransientFault:
            return 0  # busy; a dead one is seen by its process
        if health.state in ("FAILED", "FINISHED", "CANCELED"):
            raise StackFault(f"the job is {health.state}: {health.newest_failure}; see {self.job.jobmanager.log}")
        return health.restarts

    def end(self, keep: bool) -> None:
        """End every part. Harmless at any time; interrupts wait until it is done.

        Args:
            keep: leave the folder with logs and data behind.
        """
        with _no_interrupts():
            self.executor.stop(grace_s=25.0)
            self.stack.down(data=not keep)
            with contextlib.suppress(OSError):  # other demos have theirs there
                self.config.root.rmdir()

    @property
    def _prices(self) -> Path:
        return self.state.root / "prices.sqlite"

    def _weights(self, name: str) -> Path:
        return self.state.root / "adapters" / name

    def _executor_ready(self) -> bool:
        try:
            answer = httpx.get(f"http://{ports.LOOPBACK}:{self.admin_port}/readyz", timeout=2.0, trust_env=False)
        except httpx.HTTPError:
            return False
        return answer.status_code == 200

    def _write_settings(self) -> None:
        scale = self.config.time_scale
        lines = [f"time_scale = {scale}"]
        lines += ["", "[kafka]", f'bootstrap = "{self.stack.kafka.bootstrap}"']
        lines += ["", "[redis]", f'url = "{self.stack.redis.url}"']
        lines += ["", "[encoder]", f"model = {json.dumps(str(cache_folder() / 'models' / 'minilm-l6-v2'))}"]
        lines += ["", "[scopes.tenants]"]
        lines += [f'"{tenant}" = "{scope}"' for tenant, scope in self.config.profile.scopes.tenants.items()]
        watched = json.dumps(sorted(set(self.config.profile.scopes.tenants) - self.config.profile.withheld))
        lines += ["", "[warmup]", f"pattern_scopes = {watched}", f"prompt_scopes = {watched}"]
        lines += ["", "[executor]", f"admin_port = {self.admin_port}"]
        for engine in self.stack.config.engines:
            lines += ["", "[[executor.engines]]", f'name = "{engine.name}"', f'url = "{engine.url}"']
            lines += [f'pool = "{POOL}"']
        lines += ["", "[[executor.sql_loaders]]", f'name = "{LOADER}"', 'scopes = ["*"]', f'dsn = "{self._prices}"']
        lines += ['query = "SELECT sku, price FROM prices WHERE sku IN ({keys})"']
        self.settings_file.write_text("\n".join(lines) + "\n")

    def _publish_policies(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        with KafkaRecordProducer(self.kafka, client_id="stoker-demo") as producer:
            for section, body in self.config.policies().items():
                policy = Policy(scope=EVERY_SCOPE, section=section, writer="demo", version=1, at_ms=now_ms, body=body)
                key = f"{EVERY_SCOPE}/{section}/demo".encode()
                producer.send(self.kafka.topic(POLICY), encode(policy), key=key, timestamp_ms=now_ms)
            producer.flush()


def recover(root: Path) -> int:
    """End what demos left behind whose process was killed, and remove their folders. Returns how many there were."""
    left = 0
    for owner in root.glob(f"*/{_OWNER}"):
        try:
            pid, ticks = json.loads(owner.read_text())
        except (OSError, ValueError):
            continue
        if start_ticks(pid) == ticks:
            continue
        state = StateFolder.at(owner.parent)
        if not any(state.run.glob("*.json")):
            continue  # ended by itself, and kept for its logs
        Stack(state).down()
        shutil.rmtree(state.root, ignore_errors=True)
        left += 1
    return left


@contextlib.contextmanager
def _no_interrupts() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
