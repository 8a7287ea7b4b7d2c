"""Real services for the executor's tests: a broker, a Redis, simulated engines, and executors as processes."""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from connectors.kafka import KafkaRecordConsumer, KafkaRecordProducer
from connectors.redis import RedisBlobs, RedisVectors, sync_client
from connectors.settings import KafkaSettings, RedisSettings
from schemas import (
    Embedding,
    Policy,
    Prefix,
    Reason,
    Render,
    Replicas,
    Segment,
    WarmupCommand,
    WarmupOutcome,
    decode,
    encode,
    topics,
)
from schemas.canonical import command_id, embedding_key, h128, prefix_key, query_sha256, root_hash, segment_hash
from stoker.stack import ports
from stoker.stack.engines import Engine, EngineConfig
from stoker.stack.paths import PROJECT, StateFolder
from stoker.stack.process import Process
from stoker.stack.topics import create_topics

SCOPE = "acme"
FINGERPRINT = "f" * 32
WORDS = 60
PATIENCE_S = 240.0
"""Less than the life of a command, 300 s: what has expired is no longer applied."""


class Town:
    """One stack with its own topics, and everything that a test does with it.

    Args:
        bootstrap, redis_url: the services.
        folder: for settings, logs and process records.
        engine_flags: of the simulators.
        real_ports: of engines that run already; there are no simulators then.
    """

    def __init__(
        self,
        bootstrap: str,
        redis_url: str,
        folder: Path,
        engine_flags: Sequence[str] = (),
        real_ports: Sequence[int] = (),
    ) -> None:
        self.name = h128(str(folder), str(time.time_ns()))[:8]
        self.kafka = KafkaSettings(bootstrap=bootstrap, topic_prefix=f"t{self.name}.", group_prefix=f"t{self.name}")
        self.state = StateFolder.at(folder)
        self.redis_url = redis_url
        create_topics(bootstrap, self.kafka.topic_prefix)
        names = [f"{self.name}-r{i}" for i in range(len(real_ports) or 2)]
        served_at = real_ports or [ports.free_port() for _ in names]
        self.engines = {
            name: Engine(EngineConfig(name, port, ports.free_port(), "gpu", tuple(engine_flags)), self.state)
            for name, port in zip(names, served_at, strict=True)
        }
        simulators = [] if real_ports else list(self.engines.values())
        for engine in simulators:
            engine.launch()
        for engine in simulators:
            engine.process.wait_ready(engine.ready, PATIENCE_S)
        self.producer = KafkaRecordProducer(self.kafka)
        redis = sync_client(RedisSettings(url=redis_url))
        self.blobs, self.vectors = RedisBlobs(redis), RedisVectors(redis)
        self.executors: list[Process] = []
        self.admin: dict[str, int] = {}
        self.more_settings: list[str] = []
        self.sent = 0

    def settings(self, time_scale: float = 1.0, **executor: Any) -> Path:
        values = {"lease_ms": 2000, "session_ms": 6000, "backoff_ms": 50, "drain_s": 10, "quota_slack": 100, **executor}
        lines = [f"time_scale = {time_scale}", "[kafka]", f'bootstrap = "{self.kafka.bootstrap}"']
        lines += [f'topic_prefix = "{self.kafka.topic_prefix}"']
        lines += [f'group_prefix = "{self.kafka.group_prefix}"', "[redis]", f'url = "{self.redis_url}"', "[executor]"]
        lines += [f"{key} = {str(value).lower()}" for key, value in values.items()]
        for name, engine in self.engines.items():
            lines += ["[[executor.engines]]", f'name = "{name}"', f'url = "{engine.config.url}"', 'pool = "gpu"']
        path = self.state.root / f"stoker-{len(self.executors)}.toml"
        path.write_text("\n".join([*lines, *self.more_settings]))
        return path

    def executor(self, failpoint: str | None = None, wait: bool = True, **settings: Any) -> Process:
        """Starts an executor; waits until it takes commands, unless told not to."""
        process = Process(f"executor-{len(self.executors)}", self.state)
        self.admin[process.name] = port = ports.free_port()
        config = self.settings(admin_port=port, **settings)
        env = {"PYTHONPATH": str(PROJECT), **({"STOKER_FAILPOINT": failpoint} if failpoint else {})}
        process.start([sys.executable, "-m", "executor", "--config", str(config)], env)
        self.executors.append(process)
        if wait:
            process.wait_ready(lambda: self.readyz(process), PATIENCE_S)
        return process

    def readyz(self, process: Process) -> bool:
        return self.get(process, "/readyz").status_code == 200

    def get(self, process: Process, path: str) -> httpx.Response:
        try:
            return httpx.get(f"http://127.0.0.1:{self.admin[process.name]}{path}", timeout=5, trust_env=False)
        except httpx.HTTPError:
            return httpx.Response(599)

    def close(self) -> None:
        for process in self.executors:
            process.stop()
        for engine in self.engines.values():
            engine.process.stop(grace_s=1)
        self.producer.close(1_000)

    # -- what goes in --------------------------------------------------------------------------------------------------

    def warm(
        self, text: str | None = None, replicas: Sequence[str] | None = None, salt_ref: str | None = None, **fields: Any
    ) -> WarmupCommand:
        """A command for a prefix of its own."""
        self.sent += 1
        text = text or " ".join(f"{self.name}{self.sent}w{i}" for i in range(WORDS))
        root = segment_hash(root_hash("tiny", None, "t", ""), "system", text)
        self.blobs.put(SCOPE, {root: text.encode()}, 3_600_000)
        render = Render(template_sha="t", salt_ref=salt_ref)
        target = Prefix(model="tiny", segments=(Segment(root, len(text.split()), "system"),), render=render)
        names = tuple(self.engines if replicas is None else replicas)
        return self.command(
            target, prefix_key(root), pool="gpu", replicas=Replicas(max=len(names), names=names), **fields
        )

    def embed(self, **fields: Any) -> WarmupCommand:
        self.sent += 1
        query = f"question {self.sent} of {self.name}"
        sha = query_sha256(query)
        self.vectors.put(SCOPE, FINGERPRINT, {sha: np.arange(1, 9, dtype=np.float32)}, 3_600_000)
        self.blobs.put(SCOPE, {sha: query.encode()}, 3_600_000)
        target = Embedding(fingerprint=FINGERPRINT, query_sha256=sha)
        return self.command(target, embedding_key(FINGERPRINT, sha), pool="redis:main", **fields)

    def command(self, target: Any, target_key: str, pool: str, **fields: Any) -> WarmupCommand:
        now_ms = time.time_ns() // 1_000_000
        values = {
            "priority": 500,
            "lane": "tick",
            "issued_at_ms": now_ms,
            "not_before_ms": now_ms,
            "expires_at_ms": now_ms + 300_000,
            "reason": Reason(trigger="test"),
            "unit": "u",
            **fields,
        }
        identity = command_id(self.name, pool, target_key, "warm", "1", self.sent, 0)
        return WarmupCommand(
            command_id=identity, scope=SCOPE, tenant=SCOPE, pool=pool, target=target, target_key=target_key, **values
        )

    def send(self, *commands: WarmupCommand) -> None:
        for command in commands:
            key = f"{command.pool} {command.target_key}".encode()
            self.producer.send(self.kafka.topic(topics.COMMANDS), encode(command), key=key)
        self.producer.flush()

    def policy(self, section: str, version: int, **body: Any) -> None:
        policy = Policy(scope="*", section=section, writer="test", version=version, at_ms=0, body=body)
        self.producer.send(self.kafka.topic(topics.POLICY), encode(policy), key=f"*/{section}/test".encode()).wait()

    # -- what comes out ------------------------------------------------------------------------------------------------

    def records(self, topic: topics.Topic) -> list[bytes]:
        with KafkaRecordConsumer(self.kafka) as consumer:
            found = list(consumer.read_to_end(self.kafka.topic(topic)))
        return [record.value for record in found if record.value is not None]

    def outcomes(self) -> list[WarmupOutcome]:
        return [decode(value, WarmupOutcome) for value in self.records(topics.OUTCOMES)]

    def settled(self, commands: Sequence[WarmupCommand], seconds: float = PATIENCE_S) -> dict[str, list[WarmupOutcome]]:
        """Outcomes by outcome id, once every command has one on each of its replicas."""
        wanted = {
            (command.command_id, replica)
            for command in commands
            for replica in (command.replicas.names or (command.pool,))
        }

        def found() -> dict[str, list[WarmupOutcome]] | None:
            held = defaultdict(list)
            for outcome in self.outcomes():
                if (outcome.command_id, outcome.replica) in wanted:
                    held[outcome.outcome_id].append(outcome)
            return dict(held) if len(held) == len(wanted) else None

        result: dict[str, list[WarmupOutcome]] = until(found, seconds)
        return result

    def created(self, command: WarmupCommand) -> dict[str, int]:
        """Tokens that a command's requests created on each replica since the simulator started."""
        found = {}
        for name in command.replicas.names or ():
            url = f"{self.engines[name].config.url}/sim/ledger"
            entries: list[dict[str, Any]] = httpx.get(url, timeout=60, trust_env=False).json()
            mine = [entry for entry in entries if command.command_id in entry["request_id"]]
            found[name] = sum(entry["created_tokens"] for entry in mine)
        return found

    def uncommitted(self) -> int:
        """Commands that the groups have not moved past."""
        left = 0
        for pool in ("gpu", "redis.main"):
            with KafkaRecordConsumer(self.kafka, group=self.kafka.group(f"executor-{pool}")) as consumer:
                places = consumer.partitions(self.kafka.topic(topics.COMMANDS))
                consumer.assign(places)
                left += sum(consumer.lag().values())
        return left


def until(condition: Callable[[], Any], seconds: float = PATIENCE_S, pause_s: float = 0.2) -> Any:
    """Waits for a condition to hold and returns its value."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(pause_s)


def fault_rounds() -> int:
    """How often each kill is repeated: STOKER_FAULT_ROUNDS, two by default."""
    return int(os.environ.get("STOKER_FAULT_ROUNDS", "2"))
