"""The job by Flink's own client, on a session cluster: nothing of `stoker submit` is needed."""

from __future__ import annotations

import os
import subprocess

import pytest

from jobs.settings import JobSettings
from stoker.bench.workload import Workload, WorkloadConfig
from stoker.stack import ports
from stoker.stack.flink_config import FlinkConfig
from stoker.stack.flink_session import FlinkSession, SessionConfig
from stoker.stack.paths import PROJECT, StateFolder
from stoker.stack.topics import create_topics
from tests.jobs.deployment import Deployment, now_ms

pytestmark = [pytest.mark.service, pytest.mark.slow]

PREFIX = "plain-"


def test_plain_flink_run_submits_the_job_and_it_counts(job_settings: JobSettings, flink_state: StateFolder) -> None:
    kafka = job_settings.kafka.model_copy(update={"topic_prefix": PREFIX, "group_prefix": "plain"})
    create_topics(kafka.bootstrap, PREFIX)
    deployment = Deployment(job_settings.model_copy(update={"kafka": kafka}), flink_state)
    rest_port, rpc_port = ports.free_ports(2)
    session = FlinkSession(SessionConfig(slots=1, flink=FlinkConfig(rest_port, rpc_port)), flink_state)
    try:
        session.start()
        script = str(PROJECT / "jobs" / "warmup.py")
        command = ["flink", "run", "-d", "-py", script, "--config", str(deployment.file), "--parallelism", "1"]
        environment = {**os.environ, **session.environment}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        workload = Workload(WorkloadConfig(seed=1))
        for _ in range(100):
            at_ms = now_ms()
            deployment.send(workload.record(at_ms), at_ms=at_ms)
        assert deployment.settle()["counted"] == 100
    finally:
        deployment.close()
        session.stop()
