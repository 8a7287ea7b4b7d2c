"""Flink's processes as Java commands: class path, options, and how a process's memory is divided.

Flink's shell scripts start the same, with two or three JVMs before each process that only compute these words; on a
small machine that is a fifth of a job's start. How memory is divided: Flink's documentation, "Set up Flink's process
memory".
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from schemas.errors import BrokenConfiguration, StackFault
from stoker.stack.java import java_home
from stoker.stack.paths import jars

APPLICATION = "org.apache.flink.container.entrypoint.StandaloneApplicationClusterEntryPoint"
SESSION = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASKMANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
PYTHON_DRIVER = "org.apache.flink.client.python.PythonDriver"

METASPACE_MB = 256
OFF_HEAP_MB = 128
"""Of the framework; Flink's default for both kinds of process."""
FRAMEWORK_HEAP_MB = 128
MANAGED_MB = 128
NETWORK_MB = (32, 64)


def distribution() -> Path:
    """The Flink distribution inside the pip package.

    Raises:
        StackFault: when apache-flink is not installed.
    """
    spec = importlib.util.find_spec("pyflink")
    if spec is None or spec.origin is None:
        raise StackFault("apache-flink is not installed: run `make setup`")
    return Path(spec.origin).parent


def class_path() -> list[Path]:
    """Flink's own jars, flink-python (else a second thread-mode job fails, trap 12), the connector and ours.

    Raises:
        StackFault: when a jar is missing; the message names the cure.
    """
    home = distribution()
    wanted = [*(home / "lib").glob("*.jar"), *(home / "opt").glob("flink-python-*.jar"), *jars("flink")]
    return sorted([*wanted, *jars("stoker")], key=lambda jar: (jar.name.startswith("flink-dist"), jar.name))


def shipped_options() -> str:
    """What Flink's own configuration opens of Java's modules."""
    found = re.search(r"^ {6}all: (.*)$", (distribution() / "conf" / "config.yaml").read_text(), re.MULTILINE)
    return found.group(1) if found else ""


def jobmanager(main: str, conf: Path, process_mb: int, options: str, arguments: Sequence[str] = ()) -> list[str]:
    """What starts a JobManager of `process_mb`; `main` is APPLICATION or SESSION."""
    heap_mb = _flink_mb("JobManager", process_mb) - OFF_HEAP_MB
    sizes = {
        "jobmanager.memory.heap.size": heap_mb,
        "jobmanager.memory.off-heap.size": OFF_HEAP_MB,
        **_beside_flink("jobmanager", process_mb),
    }
    return _command(main, conf, [*_heap(heap_mb), *options.split()], sizes, arguments)


def taskmanager(conf: Path, process_mb: int, options: str) -> list[str]:
    """What starts a TaskManager of `process_mb` with one slot."""
    flink_mb = _flink_mb("TaskManager", process_mb)
    network_mb = min(max(flink_mb // 10, NETWORK_MB[0]), NETWORK_MB[1])
    heap_mb = flink_mb - OFF_HEAP_MB - MANAGED_MB - network_mb
    java = [*_heap(heap_mb), f"-XX:MaxDirectMemorySize={OFF_HEAP_MB + network_mb}m", *options.split()]
    sizes = {
        "taskmanager.memory.framework.heap.size": FRAMEWORK_HEAP_MB,
        "taskmanager.memory.framework.off-heap.size": OFF_HEAP_MB,
        "taskmanager.memory.task.heap.size": heap_mb - FRAMEWORK_HEAP_MB,
        "taskmanager.memory.task.off-heap.size": 0,
        "taskmanager.memory.managed.size": MANAGED_MB,
        "taskmanager.memory.network.min": network_mb,
        "taskmanager.memory.network.max": network_mb,
        **_beside_flink("taskmanager", process_mb),
    }
    return _command(TASKMANAGER, conf, java, sizes, ["-D", "taskmanager.cpu.cores=1.0"])


def _overhead_mb(process_mb: int) -> int:
    return min(max(process_mb // 10, 192), 1_024)


def _flink_mb(kind: str, process_mb: int) -> int:
    """What a process has for Flink, without what Java needs beside it."""
    flink_mb = process_mb - METASPACE_MB - _overhead_mb(process_mb)
    if flink_mb < 2 * (OFF_HEAP_MB + MANAGED_MB):
        raise BrokenConfiguration(f"a {kind} of {process_mb} MB is too small: give it 1024 MB or more")
    return flink_mb


def _beside_flink(role: str, process_mb: int) -> dict[str, int]:
    overhead_mb = _overhead_mb(process_mb)
    parts = {"metaspace.size": METASPACE_MB, "overhead.min": overhead_mb, "overhead.max": overhead_mb}
    return {f"{role}.memory.jvm-{part}": size_mb for part, size_mb in parts.items()}


def _heap(heap_mb: int) -> list[str]:
    return [f"-Xmx{heap_mb}m", f"-Xms{heap_mb}m", f"-XX:MaxMetaspaceSize={METASPACE_MB}m"]


def _command(
    main: str, conf: Path, java: Sequence[str], sizes: Mapping[str, int], arguments: Sequence[str]
) -> list[str]:
    command = [str(java_home() / "bin" / "java"), *java, *shipped_options().split()]
    command += [f"-Dlog4j2.configurationFile=file:{conf / 'log4j-console.properties'}"]
    command += ["-cp", ":".join(map(str, class_path())), main, "--configDir", str(conf)]
    for name, size_mb in sizes.items():
        command += ["-D", f"{name}={size_mb}m"]
    return [*command, *arguments]
