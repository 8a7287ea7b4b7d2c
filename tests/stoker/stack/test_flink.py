from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from schemas.errors import BrokenConfiguration, StackFault
from stoker.stack import ports
from stoker.stack.flink import applications, load_application, start_application
from stoker.stack.flink_config import FlinkConfig
from stoker.stack.flink_session import FlinkSession, SessionConfig
from stoker.stack.paths import StateFolder
from stoker.stack.process import marked

pytestmark = [pytest.mark.service, pytest.mark.slow]

JOB = Path(__file__).with_name("counting_job.py")
KEYS = 7
CONFIG = FlinkConfig(checkpoint_interval_ms=1_000)


class Counted:
    """Feeds numbers to the counting job and checks what came out."""

    def __init__(self, bootstrap: str, name: str) -> None:
        from kafka.admin import KafkaAdminClient, NewTopic

        self.bootstrap, self.source, self.sink = bootstrap, f"{name}.in", f"{name}.out"
        self.fed = 0
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        admin.create_topics([NewTopic(self.source, 2, 1), NewTopic(self.sink, 2, 1)], wait_for_metadata=True)
        admin.close()

    @property
    def args(self) -> list[str]:
        return [self.bootstrap, self.source, self.sink]

    def feed(self, records: int) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=self.bootstrap)
        for number in range(self.fed, self.fed + records):
            key = b"k%d" % (number % KEYS)
            producer.send(self.source, b"%s,%d" % (key, number), key=key)
        producer.flush()
        producer.close()
        self.fed += records

    def outputs(self) -> dict[int, int]:
        """Number -> count of all fed records; fails when one of them came out with two different counts."""
        from kafka import KafkaConsumer

        seen: dict[int, int] = {}
        consumer = KafkaConsumer(
            self.sink, bootstrap_servers=self.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=90_000
        )
        for record in consumer:
            _, number, count = record.value.split(b",")
            assert seen.setdefault(int(number), int(count)) == int(count)
            if len(seen) == self.fed:
                break
        consumer.close()
        return seen

    def check(self) -> None:
        assert self.outputs() == {number: number // KEYS + 1 for number in range(self.fed)}


def test_counts_stay_exact_over_kills_and_a_savepoint(kafka_bootstrap: str, flink_state: StateFolder) -> None:
    counted = Counted(kafka_bootstrap, "flinkstack")
    app = start_application("count", JOB, counted.args, state=flink_state, parallelism=2, config=CONFIG)
    counted.feed(500)
    app.wait_checkpoint()
    counted.feed(500)

    app.kill_taskmanager(1)
    assert app.recover() == ["count-taskmanager-1"]
    counted.feed(500)
    counted.check()

    app.kill_jobmanager()
    counted.feed(500)
    assert app.recover() == ["count-jobmanager", "count-taskmanager-0", "count-taskmanager-1"]
    assert app.record.restored_from
    counted.check()

    with pytest.raises(BrokenConfiguration, match="runs already"):
        start_application("count", JOB, counted.args, state=flink_state)
    loaded = load_application("count", flink_state)
    assert loaded.running
    savepoint = loaded.stop_with_savepoint()
    assert not loaded.running
    assert marked(flink_state) == []
    counted.feed(500)
    single = start_application("count", JOB, counted.args, state=flink_state, parallelism=1, savepoint=savepoint)
    counted.check()
    assert single.recover() == []
    single.stop()


def test_plain_flink_run_reaches_a_session_cluster(kafka_bootstrap: str, flink_state: StateFolder) -> None:
    counted = Counted(kafka_bootstrap, "session")
    rest_port, rpc_port = ports.free_ports(2)
    session = FlinkSession(SessionConfig(slots=2, flink=FlinkConfig(rest_port, rpc_port)), flink_state)
    session.start()
    session.start()
    counted.feed(200)
    run = ["flink", "run", "-d", "-p", "2", "-py", str(JOB), *counted.args]
    done = subprocess.run(run, env={**os.environ, **session.environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counted.check()
    session.stop()
    assert marked(flink_state) == []


def test_a_job_that_cannot_be_built_says_why_and_leaves_nothing(flink_state: StateFolder, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise ValueError('no such pool')\n")
    with pytest.raises(StackFault, match="no such pool"):
        start_application("broken", broken, state=flink_state)
    assert marked(flink_state) == []
    assert [app.name for app in applications(flink_state)] == ["broken"]


def test_starting_needs_a_script_and_a_savepoint_that_exist(flink_state: StateFolder, tmp_path: Path) -> None:
    with pytest.raises(BrokenConfiguration, match="does not exist"):
        start_application("x", tmp_path / "absent.py", state=flink_state)
    with pytest.raises(BrokenConfiguration, match="no savepoint"):
        start_application("x", JOB, state=flink_state, savepoint=tmp_path)


def test_an_unknown_application_is_named_with_the_known_ones(flink_state: StateFolder) -> None:
    with pytest.raises(BrokenConfiguration, match="no application warmup"):
        load_application("warmup", flink_state)
    assert applications(flink_state) == []
