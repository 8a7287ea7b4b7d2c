"""One deployment of the job for all tests of this folder that need one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.settings import EncoderSettings, KafkaSettings, RedisSettings
from jobs.settings import JobSettings, ScopeSettings, WarmupSettings
from stoker.stack.paths import StateFolder
from stoker.stack.topics import create_topics
from tests.jobs.deployment import AHEAD_MS, LATENESS_MS, Deployment, bound_future_stamps
from tests.jobs.rules import Rules

TIME_SCALE = 10.0
PREFIX = "jobs-"
WATCHED = "watched"
"""The tenant whose sessions and managed prompts are looked at, and its scope."""
CROWDED = "crowded"
"""A tenant whose policy a test may change, and its scope: nobody else's budget or queue depends on it."""


@pytest.fixture(scope="session")
def job_settings(kafka_bootstrap: str, redis_url: str, encoder_model: Path) -> JobSettings:
    """Ten times as fast as the calendar but for its patience with late events, in topics of its own."""
    create_topics(kafka_bootstrap, PREFIX)
    bound_future_stamps(kafka_bootstrap, PREFIX, AHEAD_MS)
    return JobSettings(
        kafka=KafkaSettings(bootstrap=kafka_bootstrap, topic_prefix=PREFIX),
        redis=RedisSettings(url=redis_url),
        encoder=EncoderSettings(model=encoder_model),
        time_scale=TIME_SCALE,
        scopes=ScopeSettings(tenants={WATCHED: WATCHED, CROWDED: CROWDED}),
        warmup=WarmupSettings(
            idle_ms=2_000,
            requests_idle_ms=2_000,
            lateness_ms=round(LATENESS_MS * TIME_SCALE),
            pattern_scopes=frozenset({WATCHED}),
            prompt_scopes=frozenset({WATCHED}),
        ),
    )


@pytest.fixture(scope="package")
def deployment(job_settings: JobSettings, stack_state: StateFolder) -> Iterator[Deployment]:
    """The job, which ends with the last test of this folder; ask for a parallelism with `deployment.at`."""
    made = Deployment(job_settings, stack_state)
    yield made
    made.close()


@pytest.fixture
def rules(deployment: Deployment) -> Iterator[Rules]:
    """Policies of a test, taken back at its end."""
    made = Rules(deployment)
    yield made
    made.drop_all()


@pytest.fixture
def pool(deployment: Deployment) -> str:
    """A pool of the test's own, so that its replica and its prefixes are nobody else's."""
    deployment.at(1)
    deployment.heartbeat()
    return f"gpu-{uuid.uuid4().hex}"
