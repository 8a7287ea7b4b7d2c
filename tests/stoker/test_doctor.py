from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from schemas.errors import StackFault
from stoker import doctor
from stoker.stack import java, paths, redis


def test_every_finding_that_is_not_ok_has_a_cure() -> None:
    found = doctor.findings()
    assert [finding.part for finding in found] == [
        "python", "packages", "torch", "java", "kafka jars", "flink jars", "flink", "redis", "model", "room",
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
