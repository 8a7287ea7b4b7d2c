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
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx

from connectors.kafka.producer import KafkaRecordProducer
from connectors.settings import KafkaSettings, RedisSettings
from schemas import EVERY_SCOPE, BrokenConfiguration, Policy, StackFault, TransientFault, encode
from schemas.policy import Section
from schemas.topics import ANNOUNCEMENTS, POLICY
from stoker.demo.announced import LOADER, announced, write_prices, write_weights
from stoker.demo.profile import ANSWER_TOKENS, BLOCK_TOKENS, Profile
from stoker.replay.run import Place
from stoker.stack import ports
from stoker.stack.flink import FlinkApplication, start_application
from stoker.stack.paths import DEFAULT_STATE, PROJECT, StateFolder, cache_folder
from stoker.stack.process import Process, start_ticks
from stoker.stack.stack import Stack, StackConfig

POOL = "main"
MODEL = "tiny"
EXECUTOR_READY_S = 60.0
CONCURRENCY = 16
"""Requests in flight. About three are; more would only queue up on a machine that is too slow."""
ADAPTER_LOAD_MS = 400.0
"""As it passes on the clock."""
SHORTEST_ROLLING_MIN = 1.0
_OWNER = "owner"

Mode = Literal["full", "off", "bad"]


@dataclass(frozen=True)
class DemoConfig:
    """A demo.

    Attributes:
        profile: workload and replicas.
        minutes: of traffic.
        input: folder of the trace that the profile was made of, if any.
        time_scale: how many times faster than the calendar windows, lives and the model run: the minutes that the
            rules of the design speak of then last 60 s / time_scale.
        hold_share: of units that are never warmed.
        prefill_share: of every replica's prefill that warm-ups may use. A fleet's default is 1 %: its prefixes come
            back after minutes and hours; here it is seconds.
        lru_minutes: of traffic without any warm-up before, on caches of their own.
        mode: `full` is Stoker as it is; `off` sends every command as a shadow, so that no effect may show; `bad` warms
            without measure, which must show as harm.
        seed: of workload, disturbances and bootstrap.
        root: folder that gets the demo's own folder.
    """

    profile: Profile
    minutes: float = 2.0
    input: Path | None = None
    time_scale: float = 6.0
    hold_share: float = 0.4
    prefill_share: float = 0.10
    lru_minutes: float = 1.0
    mode: Mode = "full"
    seed: int = 0
    root: Path = DEFAULT_STATE / "demo"

    def __post_init__(self) -> None:
        if not 0 < self.minutes <= 24 * 60:
            raise BrokenConfiguration("--minutes must be above 0 and at most 1,440")
        if not 0 <= self.lru_minutes <= self.minutes:
            raise BrokenConfiguration("--lru-minutes must be from 0 to --minutes")

    @property
    def restarts(self) -> tuple[tuple[float, str], ...]:
        """When each replica is restarted, in seconds from the start; a short run has none."""
        if self.minutes < SHORTEST_ROLLING_MIN or not self.profile.adapters:
            return ()
        return tuple(
            ((0.7 + 0.12 * number) * self.minutes * 60, f"r{number}") for number in range(self.profile.replicas)
        )

    @property
    def engine_flags(self) -> tuple[str, ...]:
        """Flags of every simulator: its times are given at scale 1."""
        profile = self.profile
        return (
            *("--block-tokens", str(BLOCK_TOKENS)),
            *("--num-blocks", str(profile.num_blocks)),
            *("--prefill-ms-per-token", str(profile.prefill_ms_per_token * self.time_scale)),
            *("--decode-ms-per-token", str(profile.decode_ms_per_token * self.time_scale)),
            *("--answer-tokens", str(ANSWER_TOKENS)),
            *("--time-scale", str(self.time_scale)),
            *("--adapter-load-ms", str(ADAPTER_LOAD_MS * self.time_scale)),
            # A warm-up waits while a request does, unless the mode is to do harm.
            *("--scheduling-policy", "fcfs" if self.mode == "bad" else "priority"),
        )

    def policies(self) -> dict[Section, dict[str, str | int | float | bool | None]]:
        """What is written to warmup.policy for every scope before anything runs."""
        rate = self.profile.prefill_tokens_per_s / self.time_scale
        bad = self.mode == "bad"
        plan = {"prefix_resident_ms": 6_000, "prefix_repeat_ms": 6_000, "lead_ms": 0, "min_saved_ms": 0} if bad else {}
        return {
            "plan": {"shadow": self.mode == "off", **plan},
            "budget": {"prefill_share": 1.0 if bad else self.prefill_share, "prefill_tokens_per_s": rate},
            "experiment": {"hold_share": self.hold_share, "salt": f"demo-{self.seed}"},
        }


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
        self.stack = Stack(self.state, StackConfig.on_free_ports(replicas, config.engine_flags))
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
            "warmup", PROJECT / "jobs" / "warmup.py", ["--config", str(self.settings_file)], state=self.state
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
        """Tells the planners what the workload's tenants know beforehand: adapters, and a sale.

        Args:
            began_ms: when the traffic begins.
        """
        now_ms = time.time_ns() // 1_000_000
        changes = announced(self.config, began_ms, self.place.adapters, now_ms)
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
