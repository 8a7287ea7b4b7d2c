"""What the project needs on a machine, checked one by one. Each check is quick and imports nothing heavy."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from connectors.encoders.manifest import read_manifest
from connectors.settings import EncoderSettings
from schemas.errors import BrokenConfiguration, StackFault
from stoker.stack import java, paths, ports
from stoker.stack.flink_java import distribution
from stoker.stack.kafka import KafkaConfig
from stoker.stack.process import living
from stoker.stack.redis import RedisConfig, server_command

SETUP = "run `make setup`"
NEEDED_MB = 3_000
"""Kafka, Redis, one job at parallelism 1 and two simulators take under 2.5 GB (stack.md)."""
PORTS = (
    (KafkaConfig().port, "Kafka", "--kafka-port"),
    (KafkaConfig().controller_port, "Kafka's controller", "--kafka-controller-port"),
    (RedisConfig().port, "Redis", "--redis-port"),
    *((8100 + replica, f"replica r{replica}", "--engine-port") for replica in range(2)),
    *((5600 + index, f"KV events of r{index // 2}", "--events-port") for index in range(4)),
)
"""What `stoker stack up` takes when nothing is said, for what, and what moves it."""


@dataclass(frozen=True)
class Finding:
    """One part.

    Attributes:
        part: its name.
        ok: whether it is as it should be.
        told: what was found.
        cure: what to do when it is not ok.
    """

    part: str
    ok: bool
    told: str
    cure: str = SETUP


def findings() -> list[Finding]:
    """Every part, in the order in which set-up makes them."""
    checks: tuple[Callable[[], Finding], ...] = (
        python,
        packages,
        torch,
        java_runtime,
        lambda: jars("kafka"),
        lambda: jars("flink"),
        lambda: jars("stoker"),
        flink,
        redis,
        model,
        memory,
        free_ports,
    )
    return [check() for check in checks]


def python() -> Finding:
    """Python 3.11 or 3.12 on Linux x86_64."""
    found = f"{platform.python_version()} on {sys.platform} {platform.machine()}"
    ok = sys.version_info[:2] in ((3, 11), (3, 12)) and sys.platform == "linux" and platform.machine() == "x86_64"
    return Finding(
        "python", ok, found, "use Python 3.11 or 3.12 on Linux x86_64; STOKER_PYTHON names one for `make setup`"
    )


def packages() -> Finding:
    """Every Python package at its locked version. One that only some Pythons need may be absent."""
    lock = paths.PROJECT / "deploy" / "locks" / "dev.txt"
    if not lock.exists():
        return Finding("packages", True, "installed without the checkout; not compared with a lock")
    versions: dict[str, set[str]] = {}
    needed: set[str] = set()
    for name, version, marker in re.findall(r"^([a-z0-9._-]+)==([^ ;]+)( ;)?", lock.read_text(), re.MULTILINE):
        versions.setdefault(name, set()).add(version)
        if not marker:
            needed.add(name)
    wrong = []
    for name, wanted in versions.items():
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = "missing"
        if found not in wanted and (found != "missing" or name in needed):
            wrong.append(f"{name} {found} instead of {' or '.join(sorted(wanted))}")
    return Finding("packages", not wrong, "; ".join(wrong[:8]) or f"{len(versions)} as deploy/locks/dev.txt says")


def torch() -> Finding:
    """torch, which stands outside the lock: a CPU build is enough."""
    try:
        return Finding("torch", True, importlib.metadata.version("torch"))
    except importlib.metadata.PackageNotFoundError:
        return Finding("torch", False, "not installed", f"{SETUP}; STOKER_WHEELS may name a folder with its CPU wheel")


def java_runtime() -> Finding:
    """A Java with libjvm that Flink supports."""
    try:
        home = java.java_home()
    except StackFault as fault:
        return Finding("java", False, str(fault), f"{SETUP}, or set JAVA_HOME to a JDK {java.OLDEST} to {java.NEWEST}")
    return Finding("java", True, f"{java.version(home)} at {home}")


def jars(name: str) -> Finding:
    """The jars of one lock, all there."""
    lock = paths.PROJECT / "deploy" / "jars" / name / "jgo.lock.toml"
    wanted = lock.read_text().count("[[dependencies]]") if lock.exists() else 1
    try:
        found = len(paths.jars(name))
    except StackFault as fault:
        return Finding(f"{name} jars", False, str(fault))
    return Finding(f"{name} jars", found == wanted, f"{found} of {wanted} in {paths.cache_folder() / 'jars' / name}")


def flink() -> Finding:
    """The distribution inside apache-flink, with a client that may be run."""
    try:
        client = distribution() / "bin" / "flink"
    except StackFault as fault:
        return Finding("flink", False, str(fault))
    runs = os.access(client, os.X_OK)
    return Finding(
        "flink",
        runs,
        str(distribution() if runs else f"{client} may not be executed"),
        f"{SETUP} (it sets the run bit)",
    )


def redis() -> Finding:
    """A Redis server with its search, JSON and Bloom modules."""
    try:
        command = server_command()
    except StackFault as fault:
        return Finding("redis", False, str(fault))
    missing = [part for part in command if part.startswith("/") and not Path(part).exists()]
    if missing:
        return Finding("redis", False, f"{', '.join(missing)} does not exist")
    done = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"v=(\S+)", done.stdout)
    return Finding("redis", found is not None, f"server {found.group(1) if found else done.stderr.strip()}")


def model() -> Finding:
    """The ONNX model that set-up makes from the offline package, in the precision that is used where none is named."""
    default = EncoderSettings()
    folder = paths.cache_folder() / "models" / default.model.name
    try:
        read_manifest(folder, default.precision)
    except BrokenConfiguration as fault:
        return Finding("model", False, str(fault))
    return Finding("model", True, str(folder / default.precision))


def memory() -> Finding:
    """Memory and disk for the embedded stack."""
    told = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    available_mb = int(told["MemAvailable"].split()[0]) // 1024
    disk_mb = shutil.disk_usage(Path.cwd()).free >> 20
    ok = available_mb >= NEEDED_MB and disk_mb >= NEEDED_MB
    cure = f"free {NEEDED_MB} MB of memory and disk, or run parts elsewhere"
    return Finding("room", ok, f"{available_mb} MB of memory and {disk_mb} MB of disk are free", cure)


def free_ports() -> Finding:
    """The ports that `stoker stack up` takes when nothing is said. The stack of this folder may hold them."""
    ours = set(living(paths.StateFolder(paths.DEFAULT_STATE.resolve())))
    taken = [entry for entry in PORTS if not ports.is_free(entry[0])]
    foreign = [entry for entry in taken if ports.holder_pid(entry[0]) not in ours]
    if foreign:
        told = "; ".join(f"{port} for {service} is taken by {ports.holder(port)}" for port, service, _ in foreign)
        flags = " ".join(f"{flag} PORT" for flag in dict.fromkeys(flag for *_, flag in foreign))
        return Finding("ports", False, told, f"stop what holds them, or choose others: `stoker stack up {flags}`")
    listed = ", ".join(str(port) for port, *_ in PORTS)
    return Finding("ports", True, f"{listed} {'are held by the stack of this folder' if taken else 'are free'}")
