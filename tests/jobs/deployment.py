"""The job `warmup` on real Kafka, Redis and Flink, in topics of its own; one for all tests that need it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from jobs.settings import JobSettings
from schemas import (
    Accounting,
    Cluster,
    DeadLetter,
    Focus,
    ReplicaSample,
    WarmupCommand,
    WarmupOutcome,
    WindowStats,
    decode,
    encode,
)
from schemas.topics import (
    COMMANDS,
    DEAD_LETTERS,
    INSIGHTS,
    OUTCOMES,
    REQUESTS,
    REWARDS,
    TELEMETRY,
    Topic,
)
from stoker.stack.flink import FlinkApplication, start_application
from stoker.stack.flink_config import FlinkConfig
from stoker.stack.paths import PROJECT, StateFolder

LATENESS_MS = 360_000
"""As it passes: beyond any pause of a machine that is overloaded. A job that stops for longer finds partitions idle,
may read the one with the newest records first, and then calls the others late: right, and no matter of a test."""
AHEAD_MS = 10_000
"""Of the clock, that the broker takes in stamps."""

FATES = ("counted", "second_phase", "not_demand", "late", "duplicate", "dead")
PATIENCE_S = 300.0
READY_S = 900.0
"""For a job or broker to be up on a machine that is overloaded."""


def now_ms() -> int:
    """Wall time."""
    return time.time_ns() // 1_000_000


def _names(command: WarmupCommand) -> tuple[str, ...]:
    """What an id stands for. Times and evidence may differ when a command is issued again after a recovery."""
    return (command.scope, command.pool, command.target_key, command.action, command.unit, command.arm)


@dataclass
class Outputs:
    """Everything that the job has written so far, read as its readers must; and outcomes by their ids."""

    accounting: dict[int, Accounting] = field(default_factory=dict)
    panes: dict[tuple[str, str, int, int], WindowStats] = field(default_factory=dict)
    commands: dict[str, WarmupCommand] = field(default_factory=dict)
    changed_commands: list[str] = field(default_factory=list)
    dead: dict[str, DeadLetter] = field(default_factory=dict)
    clusters: list[Cluster] = field(default_factory=list)
    focuses: list[Focus] = field(default_factory=list)
    outcomes: dict[str, list[WarmupOutcome]] = field(default_factory=lambda: defaultdict(list))

    def fates(self) -> dict[str, int]:
        """Where every record of llm.requests went, over all shards."""
        return {fate: sum(getattr(shard, fate) for shard in self.accounting.values()) for fate in FATES}

    @property
    def read(self) -> int:
        """Records of llm.requests that the job accounts for."""
        return sum(self.fates().values())

    def totals(self) -> dict[str, int]:
        """Events over all panes, by dimension."""
        found: dict[str, int] = defaultdict(int)
        for stats in self.panes.values():
            found[stats.dimension] += stats.events
        return dict(found)

    def take(self, topic: str, key: bytes | None, value: bytes) -> None:
        """One record of an output topic. Repetitions must not change anything."""
        if topic.endswith(COMMANDS.name):
            command = msgspec.json.decode(value, type=WarmupCommand)
            assert key is not None
            assert key.decode().endswith(command.target_key)
            if _names(self.commands.setdefault(command.command_id, command)) != _names(command):
                self.changed_commands.append(command.command_id)
        elif topic.endswith(DEAD_LETTERS.name):
            letter = msgspec.json.decode(value, type=DeadLetter)
            assert key == letter.reason.encode()
            self.dead[letter.dead_id] = letter
        elif topic.endswith(OUTCOMES.name):
            outcome = msgspec.json.decode(value, type=WarmupOutcome)
            self.outcomes[outcome.outcome_id].append(outcome)
        elif b'"schema":"accounting/1"' in value:
            shard = msgspec.json.decode(value, type=Accounting)
            if shard.shard not in self.accounting or shard.revision >= self.accounting[shard.shard].revision:
                self.accounting[shard.shard] = shard
        elif b'"schema":"cluster/1"' in value:
            self.clusters.append(decode(value, Cluster))
        elif b'"schema":"focus/1"' in value:
            self.focuses.append(decode(value, Focus))
        elif b'"schema":"window_stats/1"' in value:
            stats = msgspec.json.decode(value, type=WindowStats)
            place = (stats.scope, stats.dimension, stats.shard, stats.pane_start_ms)
            if place not in self.panes or stats.revision >= self.panes[place].revision:
                self.panes[place] = stats


class Deployment:
    """One job with one history. `at` moves it to a parallelism by savepoint and restore.

    Args:
        settings: of the job.
        state: folder for Flink.
    """

    def __init__(self, settings: JobSettings, state: StateFolder) -> None:
        self.settings = settings
        self.outputs = Outputs()
        self.state = state
        self.file = state.root / f"{settings.kafka.topic_prefix}job.json"
        self._app: FlinkApplication | None = None
        self._savepoint: Path | None = None
        bootstrap = settings.kafka.bootstrap
        producing = {"linger.ms": 2, "message.max.bytes": 10_000_000, "enable.idempotence": True, "log_level": 2}
        self.producer = Producer({"bootstrap.servers": bootstrap, **producing})
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "outputs",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
            }
        )
        topics = [settings.kafka.topic(topic) for topic in (COMMANDS, DEAD_LETTERS, INSIGHTS, OUTCOMES)]
        self._consumer.assign([TopicPartition(t, p, OFFSET_BEGINNING) for t in topics for p in range(4)])
        self.refused: list[str] = []
        self.tombstones = 0

    @property
    def app(self) -> FlinkApplication:
        """The running application."""
        assert self._app is not None
        return self._app

    def at(self, parallelism: int, *, ingest_apart: bool = False) -> FlinkApplication:
        """The job at this parallelism, with everything that it knew before.

        Args:
            parallelism: of every operator.
            ingest_apart: whether ingest gets slots of its own where the job has to be started for this.
        """
        if self._app is not None and self._app.record.parallelism != parallelism:
            self._savepoint = self._app.stop_with_savepoint()
            self._app = None
        if self._app is None:
            warmup = self.settings.warmup.model_copy(update={"ingest_apart": ingest_apart})
            self.file.write_text(self.settings.model_copy(update={"warmup": warmup}).to_json())
            self._app = start_application(
                "warmup",
                PROJECT / "jobs" / "warmup.py",
                ["--config", str(self.file)],
                state=self.state,
                parallelism=parallelism,
                savepoint=self._savepoint,
                # Who was killed is known by the refused connection; who is only slow must not be taken for dead.
                config=FlinkConfig(
                    subtask_slots=warmup.subtask_slots,
                    checkpoint_interval_ms=1_000,
                    restart_delay_ms=500,
                    heartbeat_timeout_ms=60_000,
                ),
                ready_s=READY_S,
            )
        return self._app

    def close(self) -> None:
        """Ends the application."""
        self._consumer.close()
        if self._app is not None:
            self._app.stop()

    def send(
        self,
        value: bytes | None,
        topic: Topic = REQUESTS,
        at_ms: int | None = None,
        key: bytes | None = None,
        partition: int = -1,
    ) -> None:
        """Queues one record; `flush` sends it. What the broker refuses is noted."""
        self.producer.produce(
            self.settings.kafka.topic(topic),
            value=value,
            key=key,
            partition=partition,
            timestamp=now_ms() if at_ms is None else at_ms,
            on_delivery=lambda error, _message: self.refused.append(error.name()) if error else None,
        )
        self.tombstones += value is None and topic is REQUESTS
        self.producer.poll(0)

    def flush(self) -> None:
        """Waits until the broker has answered for every record."""
        assert self.producer.flush(PATIENCE_S) == 0

    def heartbeat(self) -> None:
        """What an executor sends every second; moves event time when requests are quiet."""
        sample = ReplicaSample(replica="r0", pool="gpu", incarnation="1", sampled_at_ms=now_ms(), state="ready")
        self.send(encode(sample), TELEMETRY, key=b"r0")
        self.flush()

    def written(self) -> int:
        """Records of llm.requests on the broker, tombstones apart."""
        name = self.settings.kafka.topic(REQUESTS)
        ends = [self._consumer.get_watermark_offsets(TopicPartition(name, p), timeout=60.0)[1] for p in range(4)]
        return sum(ends) - self.tombstones

    def drain(self) -> None:
        """Reads what the job has written meanwhile."""
        while messages := self._consumer.consume(1_000, 0.1):
            for message in messages:
                if message.error():
                    raise KafkaException(message.error())
                self.outputs.take(message.topic(), message.key(), message.value())

    def wait(self, done: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
        """Reads outputs and sends heartbeats until `done()`."""
        deadline = time.monotonic() + patience_s
        while True:
            self.drain()
            if done():
                return
            assert time.monotonic() < deadline, f"{what}: not within {patience_s:.0f} s; {self._told()}"
            self.heartbeat()
            time.sleep(0.1)

    def settle(self) -> dict[str, int]:
        """Waits until every record of llm.requests is accounted for, and checks that the books balance.

        Returns:
            Records by fate.
        """
        self.flush()
        self.wait(lambda: self.outputs.read >= self.written(), "every record accounted for")
        fates = self.outputs.fates()
        assert sum(fates.values()) == self.written(), f"more accounted for than written: {self._told()}"
        self.wait(lambda: self.outputs.totals().get("query", 0) == fates["counted"], "panes add up to what is counted")
        assert self.outputs.changed_commands == []
        return fates

    def _told(self) -> str:
        totals = self.outputs.totals()
        health = self._app.health() if self._app is not None else "not ours"
        return f"written {self.written()}, accounted {self.outputs.fates()}, panes {totals}, job {health}"

    def restarts(self) -> int:
        """How often Flink has restarted the job since its JobManager came up."""
        return self.app.health().restarts


def paced(rate_per_s: float, seconds: float) -> Iterator[int]:
    """Times to send at, as they come."""
    start, count = time.monotonic(), int(rate_per_s * seconds)
    for index in range(count):
        ahead = start + index / rate_per_s - time.monotonic()
        if ahead > 0.002:
            time.sleep(ahead)
        yield now_ms()


def bound_future_stamps(bootstrap: str, prefix: str, ahead_ms: int) -> None:
    """How far ahead the broker takes stamps: less than lateness forgives, as in production."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entry = ConfigEntry("message.timestamp.after.max.ms", str(ahead_ms), incremental_operation=AlterConfigOpType.SET)
    resources = [
        ConfigResource(ResourceType.TOPIC, prefix + topic.name, incremental_configs=[entry])
        for topic in (REQUESTS, REWARDS, TELEMETRY)
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.incremental_alter_configs(resources).values():
        done.result()
