"""One deployment of the job for all tests of this folder that need one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.settings import EncoderSettings, KafkaSettings, RedisSettings
from jobs.settings import JobSettings, WarmupSettings
from schemas.topics import MAX_TIMESTAMP_AHEAD_MS, REQUESTS, REWARDS, TELEMETRY
from stoker.stack.paths import StateFolder, cache_folder
from stoker.stack.topics import create_topics
from tests.jobs.deployment import Deployment

TIME_SCALE = 10.0
PREFIX = "jobs-"


@pytest.fixture(scope="session")
def encoder_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported encoder: that of `make setup`, else made here."""
    from connectors.encoders.export import export

    folder = cache_folder() / "models" / "minilm-l6-v2"
    if not folder.is_dir():
        folder = tmp_path_factory.mktemp("model")
        export(folder)
    return folder


@pytest.fixture(scope="session")
def job_settings(kafka_bootstrap: str, redis_url: str, encoder_model: Path) -> JobSettings:
    """Ten times as fast as the calendar, in topics of its own, whose bound on future stamps is as much smaller."""
    create_topics(kafka_bootstrap, PREFIX)
    bound_future_stamps(kafka_bootstrap)
    return JobSettings(
        kafka=KafkaSettings(bootstrap=kafka_bootstrap, topic_prefix=PREFIX),
        redis=RedisSettings(url=redis_url),
        encoder=EncoderSettings(model=encoder_model),
        warmup=WarmupSettings(time_scale=TIME_SCALE, idle_ms=2_000),
    )


@pytest.fixture(scope="session")
def deployment(job_settings: JobSettings, stack_state: StateFolder) -> Iterator[Deployment]:
    """The job; ask for a parallelism with `deployment.at`."""
    made = Deployment(job_settings, stack_state)
    yield made
    made.close()


def bound_future_stamps(bootstrap: str) -> None:
    """Scales the broker's bound like all event time: a lateness of 3 s forgives stamps 3 s ahead, not 30."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    bound = str(int(MAX_TIMESTAMP_AHEAD_MS / TIME_SCALE))
    entry = ConfigEntry("message.timestamp.after.max.ms", bound, incremental_operation=AlterConfigOpType.SET)
    resources = [
        ConfigResource(ResourceType.TOPIC, PREFIX + topic.name, incremental_configs=[entry])
        for topic in (REQUESTS, REWARDS, TELEMETRY)
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.incremental_alter_configs(resources).values():
        done.result()
