from __future__ import annotations

import inspect
import os
import socket
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from schemas.errors import StackFault
from stoker import doctor
from stoker.commands.stack import up
from stoker.stack import java, paths, ports, redis
from stoker.stack.paths import StateFolder
from stoker.stack.process import Record, boot_id, start_ticks


def test_every_finding_that_is_not_ok_has_a_cure() -> None:
    found = doctor.findings()
    assert [finding.part for finding in found] == [
        "python", "packages", "torch", "java", "kafka jars", "flink jars", "stoker jars", "flink",
        "redis", "model", "room", "ports",
    ]  # fmt: skip
    assert all(finding.ok or finding.cure for finding in found)


def test_missing_jars_and_model_are_named_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    for finding in (doctor.jars("kafka"), doctor.jars("flink"), doctor.model()):
        assert not finding.ok
        assert str(tmp_path) in finding.told
        assert "make setup" in finding.cure


def test_one_jar_too_few_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jars" / "kafka").mkdir(parents=True)
    (tmp_path / "jars" / "kafka" / "kafka-clients-1.jar").touch()
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    assert not doctor.jars("kafka").ok


def test_wrong_and_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "deploy" / "locks" / "dev.txt"
    lock.parent.mkdir(parents=True)
    lock.write_text(
        "redis==0.1 \\\n    --hash=x\nabsent-package==1.0 \\\nold-only==1 ; python_full_version < '3.0' \\\n"
    )
    monkeypatch.setattr(paths, "PROJECT", tmp_path)
    finding = doctor.packages()
    assert not finding.ok
    assert "instead of 0.1" in finding.told
    assert "absent-package missing" in finding.told
    assert "old-only" not in finding.told


def test_no_java_is_told_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_candidates", lambda: [])
    java.java_home.cache_clear()
    finding = doctor.java_runtime()
    java.java_home.cache_clear()
    assert not finding.ok
    assert "JAVA_HOME" in finding.cure


def test_no_redis_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "_package", lambda _name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(StackFault, match="make setup"):
        redis.server_command()
    assert not doctor.redis().ok


def test_a_taken_port_is_told_with_its_holder_and_the_flag_that_moves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket() as listener:
        listener.bind((ports.LOOPBACK, 0))
        listener.listen()
        port = listener.getsockname()[1]
        monkeypatch.setattr(
            doctor, "PORTS", ((ports.free_port(), "Kafka", "--kafka-port"), (port, "Redis", "--redis-port"))
        )
        taken = doctor.free_ports()
        own = StateFolder.at()
        record = Record(os.getpid(), start_ticks(os.getpid()) or 0, boot_id(), ["redis-server"])
        (own.run / "redis.json").write_bytes(msgspec.json.encode(record))
        ours = doctor.free_ports()
    assert not taken.ok
    assert taken.told.startswith(f"{port} for Redis is taken by process {os.getpid()} (")
    assert taken.cure.endswith("`stoker stack up --redis-port PORT`")
    assert ours.ok, "a stack that runs in this folder is no fault"
    assert "held by the stack of this folder" in ours.told
    free = doctor.free_ports()
    assert free.ok
    assert "are free" in free.told


def test_looking_at_the_ports_makes_no_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    doctor.free_ports()
    assert list(tmp_path.iterdir()) == []


def test_the_ports_are_those_that_a_stack_takes_by_default() -> None:
    default = {name: one.default for name, one in inspect.signature(up).parameters.items()}
    engines = range(default["engines"])
    wanted = {
        f"--{name.replace('_', '-')}": [default[name]] for name in ("kafka_port", "kafka_controller_port", "redis_port")
    }
    wanted["--engine-port"] = [default["engine_port"] + index for index in engines]
    wanted["--events-port"] = [
        default["events_port"] + 2 * index + of_replay for index in engines for of_replay in (0, 1)
    ]
    found: dict[str, list[int]] = {}
    for port, _, flag in doctor.PORTS:
        found.setdefault(flag, []).append(port)
    assert found == wanted


def test_the_command_ends_with_3_when_something_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import typer

    from stoker.commands.doctor import register

    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 3
    assert "MISSING  kafka jars" in result.output
    assert "cure: run `make setup`" in result.output
