from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from schemas.errors import BrokenConfiguration
from stoker.stack import flink_java


@pytest.fixture(autouse=True)
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, file in (("flink", "flink-sql-connector-kafka-x.jar"), ("stoker", "stoker-flink.jar")):
        jar = tmp_path / "jars" / name / file
        jar.parent.mkdir(parents=True)
        jar.touch()
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))


def sizes(command: list[str]) -> dict[str, str]:
    told = [value for flag, value in itertools.pairwise(command) if flag == "-D"]
    return dict(pair.split("=") for pair in told)


def test_a_taskmanagers_memory_is_divided_as_flinks_own_scripts_do(tmp_path: Path) -> None:
    """The figures are what `taskmanager.sh` of Flink 2.3 printed for 1600 MB."""
    command = flink_java.taskmanager(tmp_path, 1_600, "-XX:TieredStopAtLevel=1")
    assert {"-Xmx832m", "-Xms832m", "-XX:MaxDirectMemorySize=192m", "-XX:MaxMetaspaceSize=256m"} <= set(command)
    assert "-XX:TieredStopAtLevel=1" in command
    assert "--add-opens=java.base/java.util=ALL-UNNAMED" in command
    assert sizes(command) == {
        "taskmanager.memory.framework.heap.size": "128m",
        "taskmanager.memory.framework.off-heap.size": "128m",
        "taskmanager.memory.task.heap.size": "704m",
        "taskmanager.memory.task.off-heap.size": "0m",
        "taskmanager.memory.managed.size": "128m",
        "taskmanager.memory.network.min": "64m",
        "taskmanager.memory.network.max": "64m",
        "taskmanager.memory.jvm-metaspace.size": "256m",
        "taskmanager.memory.jvm-overhead.min": "192m",
        "taskmanager.memory.jvm-overhead.max": "192m",
        "taskmanager.cpu.cores": "1.0",
    }


def test_a_jobmanagers_memory_is_divided_as_flinks_own_scripts_do(tmp_path: Path) -> None:
    """The figures are what `standalone-job.sh` of Flink 2.3 printed for 1024 MB."""
    command = flink_java.jobmanager(flink_java.SESSION, tmp_path, 1_024, "", ["--one"])
    assert {"-Xmx448m", "-Xms448m", "-XX:MaxMetaspaceSize=256m"} <= set(command)
    assert command[-1] == "--one"
    assert sizes(command) == {
        "jobmanager.memory.heap.size": "448m",
        "jobmanager.memory.off-heap.size": "128m",
        "jobmanager.memory.jvm-metaspace.size": "256m",
        "jobmanager.memory.jvm-overhead.min": "192m",
        "jobmanager.memory.jvm-overhead.max": "192m",
    }


def test_the_class_path_is_the_same_at_each_start_with_flinks_own_classes_last() -> None:
    names = [jar.name for jar in flink_java.class_path()]
    assert names[:-1] == sorted(names[:-1])
    assert names[-1].startswith("flink-dist-")
    assert {"flink-sql-connector-kafka-x.jar", "stoker-flink.jar"} < set(names)


def test_a_process_that_is_too_small_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokenConfiguration, match="900 MB is too small"):
        flink_java.taskmanager(tmp_path, 900, "")
