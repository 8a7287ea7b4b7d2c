"""What the benches of the jobs share: a stack in a folder of its own, a job on it, and the clock of its outputs."""

from __future__ import annotations

import importlib
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from connectors.settings import EncoderSettings, KafkaSettings, RedisSettings
from jobs.settings import JobSettings, ScopeSettings, WarmupSettings
from schemas.errors import BrokenConfiguration, StackFault
from schemas.topics import TOPICS, Topic, at_time_scale
from stoker.stack import ports
from stoker.stack.flink import FlinkApplication, start_application
from stoker.stack.flink_config import FlinkConfig
from stoker.stack.paths import StateFolder
from stoker.stack.stack import Stack, StackConfig
from stoker.stack.topics import create_topics


@contextmanager
def bench_stack() -> Iterator[Stack]:
    """Kafka and Redis on free ports, in a temporary folder; nothing of them stays."""
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        stack = Stack(StateFolder.at(folder), StackConfig.on_free_ports())
        stack.up()
        try:
            yield stack
        finally:
            stack.down()


def job_settings(
    stack: Stack, prefix: str, warmup: WarmupSettings | None = None, time_scale: float = 1.0
) -> JobSettings:
    """Settings of a job on this stack: topics with a prefix of their own, made here; every tenant a scope."""
    create_topics(stack.kafka.bootstrap, prefix, topics=at_time_scale(TOPICS, time_scale))
    return JobSettings(
        kafka=KafkaSettings(bootstrap=stack.kafka.bootstrap, topic_prefix=prefix, group_prefix=f"{prefix}stoker"),
        redis=RedisSettings(url=stack.redis.url),
        encoder=EncoderSettings(model=EncoderSettings().model.absolute()),
        scopes=ScopeSettings(unknown="own"),
        warmup=warmup or WarmupSettings(),
        time_scale=time_scale,
    )


class Gauge:
    """Reads how many records an operator has taken, from the metrics pages of the job's TaskManagers.

    Args:
        app: whose job runs.
        operator: its name.
        metric: what counts them; what Flink counts itself are bundles where it is given bundles.
    """

    def __init__(self, app: FlinkApplication, operator: str, metric: str = "numRecordsIn") -> None:
        logs = [taskmanager.log.read_text(errors="replace") for taskmanager in app.taskmanagers]
        found = [re.findall(r"PrometheusReporter HTTP server on port (\d+)", log)[-1] for log in logs]
        self._urls = [f"http://{ports.LOOPBACK}:{port}/metrics" for port in found]
        name = re.escape(operator)
        self._line = re.compile(
            rf'^flink_taskmanager_job_task_operator_{metric}{{[^}}]*operator_name="{name}"[^}}]*}} (\S+)$', re.M
        )

    def read(self) -> int:
        """Records taken so far; 0 before the operator reports."""
        return sum(self._read(url) for url in self._urls)

    def _read(self, url: str) -> int:
        try:
            page = httpx.get(url, timeout=10.0, trust_env=False).text
        except httpx.HTTPError:
            return 0
        return sum(int(float(count)) for count in self._line.findall(page))


@contextmanager
def stack_redis(stack: Stack) -> Iterator[Any]:
    """A client of the stack's Redis."""
    import redis

    client = redis.Redis.from_url(stack.redis.url)
    try:
        yield client
    finally:
        client.close()


@contextmanager
def running(
    stack: Stack,
    name: str,
    script: Path,
    settings: JobSettings,
    parallelism: int,
    flags: Sequence[str] = (),
    cluster: FlinkConfig | None = None,
) -> Iterator[FlinkApplication]:
    """A job in application mode, ended afterwards. Flags are the script's own; the cluster is as its settings ask."""
    config = stack.state.data(f"bench-{name}") / "settings.json"
    config.write_text(settings.to_json())
    app = start_application(
        name,
        script,
        ["--config", str(config), *flags],
        state=stack.state,
        parallelism=parallelism,
        config=cluster or FlinkConfig.of_job(settings.warmup),
    )
    try:
        yield app
    finally:
        app.stop()


def confluent() -> Any:
    """The load generator's Kafka client, thirty times as fast as kafka-python.

    Raises:
        BrokenConfiguration: it is not installed.
    """
    try:
        import confluent_kafka
    except ImportError:
        raise BrokenConfiguration("this bench needs confluent-kafka: install the dev group (`make setup`)") from None
    return confluent_kafka


class Tail:
    """Reads topics from where they are now, or from their beginning.

    Args:
        bootstrap: brokers.
        names: full topic names.
        from_start: else only what is written from now on.
    """

    def __init__(self, bootstrap: str, names: Sequence[str], from_start: bool = True) -> None:
        kafka = confluent()
        self._consumer = kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, "fetch.wait.max.ms": 5}
        )
        partitions = [
            kafka.TopicPartition(name, number, kafka.OFFSET_BEGINNING)
            for name in names
            for number in self._consumer.list_topics(name, timeout=10.0).topics[name].partitions
        ]
        if not from_start:  # the end is that of now, not of the first poll
            for partition in partitions:
                partition.offset = self._consumer.get_watermark_offsets(partition, timeout=10.0)[1]
        self._consumer.assign(partitions)

    def poll(self, timeout_s: float = 0.05) -> list[Any]:
        """What came since the last call."""
        return [message for message in self._consumer.consume(2_000, timeout_s) if not message.error()]

    def close(self) -> None:
        """Let go."""
        self._consumer.close()


def written(bootstrap: str, name: str) -> int:
    """Records that a topic, named in full, has taken since it was made. Nothing is read."""
    kafka = confluent()
    client = kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    try:
        partitions = client.list_topics(name, timeout=10.0).topics[name].partitions
        ends = [client.get_watermark_offsets(kafka.TopicPartition(name, each), timeout=10.0)[1] for each in partitions]
    finally:
        client.close()
    return sum(ends)


def until(done: Callable[[], bool], what: str, deadline_s: float) -> None:
    """Repeats `done` until it says so.

    Raises:
        StackFault: the deadline passed.
    """
    deadline = time.monotonic() + deadline_s
    while not done():
        if time.monotonic() > deadline:
            raise StackFault(f"bench: {what} took longer than {deadline_s:.0f} s")


def topic(settings: JobSettings, which: Topic) -> str:
    """Full name of a topic."""
    return settings.kafka.topic(which)


def stamp_when_written(settings: JobSettings, which: Topic) -> None:
    """Lets the broker stamp a topic's records when it takes them; the job's sink stamps them with its event time."""
    confluent()
    admin: Any = importlib.import_module("confluent_kafka.admin")
    entry = admin.ConfigEntry(
        "message.timestamp.type", "LogAppendTime", incremental_operation=admin.AlterConfigOpType.SET
    )
    resource = admin.ConfigResource("topic", topic(settings, which), incremental_configs=[entry])
    client = admin.AdminClient({"bootstrap.servers": settings.kafka.bootstrap})
    for done in client.incremental_alter_configs([resource]).values():
        done.result(30.0)
