"""Real services for the tests that ask for them: started once per session on free ports, in folders of their own.

A service that cannot be started skips its tests here with the reason, and fails them where CI=true.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from schemas.errors import StackFault
from stoker.stack import ports
from stoker.stack.flink_java import distribution
from stoker.stack.java import java_home
from stoker.stack.kafka import Kafka, KafkaConfig
from stoker.stack.paths import PROJECT, StateFolder, cache_folder, jars
from stoker.stack.process import marked, sweep
from stoker.stack.redis import Redis, RedisConfig
from stoker.stack.topics import create_topics

# A test's JVM lives for a minute or two, and the optimising compiler would take a third of its time and never pay back.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

Service = TypeVar("Service")
READY_S = 300.0
"""For a service to start on a machine that is overloaded."""


def _started(make: Callable[[], Service]) -> Service:
    try:
        return make()
    except StackFault as fault:
        if os.environ.get("CI") == "true":
            pytest.fail(f"a service is missing in CI: {fault}", pytrace=False)
        pytest.skip(str(fault))


@pytest.fixture(scope="session")
def started() -> Callable[[Callable[[], Service]], Service]:
    """For fixtures elsewhere that start a service of their own: skips, or fails in CI, where it cannot be started."""
    return _started


@pytest.fixture(scope="session")
def stack_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StateFolder]:
    """The folder of this session's services; whatever they started is ended at the end."""
    state = StateFolder.at(tmp_path_factory.mktemp("stack"))
    yield state
    sweep(state)


@pytest.fixture(scope="session")
def kafka_server(stack_state: StateFolder) -> Iterator[Kafka]:
    """The session's broker, with all topics of Stoker. Tests that kill it start it again before they end."""

    def start() -> Kafka:
        config = KafkaConfig(ports.free_port(), ports.free_port(), heap_mb=384)
        kafka = Kafka(config, stack_state)
        kafka.start(READY_S)
        create_topics(kafka.bootstrap)
        return kafka

    kafka = _started(start)
    yield kafka
    kafka.stop()


@pytest.fixture(scope="session")
def kafka_bootstrap(kafka_server: Kafka) -> str:
    """`host:port` of a real Kafka. Shared by all tests: use topics or a prefix of your own (`create_topics`)."""
    return kafka_server.bootstrap


@pytest.fixture(scope="session")
def redis_server(stack_state: StateFolder) -> Iterator[Redis]:
    """The session's Redis with search and Bloom."""

    def start() -> Redis:
        redis = Redis(RedisConfig(ports.free_port()), stack_state)
        redis.start(READY_S)
        return redis

    redis = _started(start)
    yield redis
    redis.stop()


@pytest.fixture(scope="session")
def redis_url(redis_server: Redis) -> str:
    """URL of a real Redis 8 with search and Bloom. Shared by all tests: use key names of your own."""
    return redis_server.url


@pytest.fixture(scope="session")
def encoder_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the exported encoder: that of `make setup`, else made here in the default precision."""
    from connectors.encoders.export import export
    from connectors.settings import EncoderSettings

    default = EncoderSettings()
    folder = cache_folder() / "models" / default.model.name
    if not (folder / default.precision).is_dir():
        folder = tmp_path_factory.mktemp("model")
        export(folder, default.precision)
    return folder


@pytest.fixture
def flink_state(tmp_path: Path) -> Iterator[StateFolder]:
    """A folder for the Flink applications of one test (`state=` of `start_application`); nothing outlives it."""

    def check() -> None:
        java_home()
        distribution()
        jars("flink")

    _started(check)
    state = StateFolder.at(tmp_path / "flink-state")
    yield state
    sweep(state)
    assert marked(state) == []


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The data folder: STOKER_DATA, else `../shared/data` beside the checkout. Tests that need it skip without it."""
    folder = Path(os.environ.get("STOKER_DATA") or PROJECT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no data at {folder}: set STOKER_DATA")
    return folder
