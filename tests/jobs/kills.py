"""kill -9 of the parts of a running deployment, each of which is started again at once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from stoker.stack.flink import FlinkApplication
from stoker.stack.kafka import Kafka
from stoker.stack.redis import Redis
from tests.jobs.deployment import READY_S


@dataclass
class Parts:
    """What may die."""

    app: FlinkApplication
    kafka: Kafka
    redis: Redis
    luck: random.Random


Kill = Callable[[Parts], None]


def taskmanager(parts: Parts) -> None:
    """One TaskManager, and a new one in its place."""
    index = parts.luck.randrange(parts.app.record.parallelism)
    parts.app.kill_taskmanager(index)
    parts.app.restart_taskmanager(index)


def jobmanager(parts: Parts) -> None:
    """The JobManager, and a new one from the newest checkpoint."""
    parts.app.kill_jobmanager()
    parts.app.restart_jobmanager(ready_s=READY_S)


def kafka(parts: Parts) -> None:
    """The broker, and the same data again."""
    parts.kafka.process.kill()
    parts.kafka.start(READY_S)


def redis(parts: Parts) -> None:
    """Redis: what it would have been told meanwhile is dropped, the stream goes on."""
    parts.redis.process.kill()
    time.sleep(1.0)
    parts.redis.start(READY_S)
