"""The job by Flink's own client, on a session cluster: nothing of `stoker submit` is needed."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from jobs.settings import JobSettings
from stoker.bench.workload import Workload, WorkloadConfig
from stoker.stack import ports
from stoker.stack.flink_config import FlinkConfig
from stoker.stack.flink_session import FlinkSession, SessionConfig
from stoker.stack.paths import PROJECT, StateFolder
from stoker.stack.topics import create_topics
from tests.jobs.deployment import READY_S, Deployment, now_ms

pytestmark = [pytest.mark.service, pytest.mark.slow]

PREFIX = "plain-"


def documented() -> list[str]:
    """The command of docs/commands.md, as it stands there but for the script's folder."""
    lines = (PROJECT / "docs" / "commands.md").read_text().splitlines()
    (line,) = [line.strip() for line in lines if line.strip().startswith("flink run")]
    words = shlex.split(line)
    assert {"--", "jobs/warmup.py", "stoker.toml"} <= set(words)
    return [str(PROJECT / word) if word == "jobs/warmup.py" else word for word in words]


def toml_of(settings: JobSettings) -> str:
    """These settings as a person writes them."""
    kafka = settings.kafka
    lines = [f"time_scale = {settings.time_scale}", "[kafka]", f'bootstrap = "{kafka.bootstrap}"']
    lines += [f'topic_prefix = "{kafka.topic_prefix}"', f'group_prefix = "{kafka.group_prefix}"']
    lines += ["[redis]", f'url = "{settings.redis.url}"', "[encoder]", f'model = "{settings.encoder.model}"']
    patience = [f"{name} = {getattr(settings.warmup, name)}" for name in ("idle_ms", "requests_idle_ms")]
    return "\n".join([*lines, "[warmup]", *patience])


def test_flink_run_as_documented_submits_the_job_and_it_counts(
    job_settings: JobSettings, flink_state: StateFolder, tmp_path: Path
) -> None:
    kafka = job_settings.kafka.model_copy(update={"topic_prefix": PREFIX, "group_prefix": "plain"})
    create_topics(kafka.bootstrap, PREFIX)
    deployment = Deployment(job_settings.model_copy(update={"kafka": kafka}), flink_state)
    rest_port, rpc_port = ports.free_ports(2)
    session = FlinkSession(SessionConfig(slots=1, flink=FlinkConfig(rest_port, rpc_port)), flink_state)
    try:
        session.start(READY_S)
        (tmp_path / "stoker.toml").write_text(toml_of(deployment.settings))
        environment = {**os.environ, **session.environment}
        done = subprocess.run(documented(), env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        workload = Workload(WorkloadConfig(seed=1))
        for _ in range(100):
            at_ms = now_ms()
            deployment.send(workload.record(at_ms), at_ms=at_ms)
        assert deployment.settle()["counted"] == 100
    finally:
        deployment.close()
        session.stop()
