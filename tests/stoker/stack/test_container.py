from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from schemas.errors import BrokenConfiguration
from stoker.stack.container import command
from stoker.stack.flink_java import TASKMANAGER


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name in ("flink", "stoker"):
        jar = tmp_path / "cache" / "jars" / name / f"{name}-x.jar"
        jar.parent.mkdir(parents=True)
        jar.touch()
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))
    return {"STOKER_STATE": str(tmp_path / "state"), "STOKER_LOCAL": str(tmp_path / "local"), "STOKER_PARALLELISM": "3"}


def test_a_taskmanager_finds_its_jobmanager_by_name(environ: dict[str, str], tmp_path: Path) -> None:
    program, added = command(["taskmanager"], environ)
    assert TASKMANAGER in program
    config = yaml.safe_load((tmp_path / "local" / "conf" / "config.yaml").read_text())
    assert config["jobmanager"]["rpc"] == {"address": "jobmanager", "port": 6123}
    assert config["taskmanager"]["bind-host"] == "0.0.0.0"
    assert "host" not in config["taskmanager"]
    assert config["execution"]["checkpointing"]["dir"] == f"file://{tmp_path}/state/checkpoints"
    assert added["FLINK_CONF_DIR"] == str(tmp_path / "local" / "conf")


def test_a_jobmanager_goes_on_from_the_newest_checkpoint(environ: dict[str, str], tmp_path: Path) -> None:
    program, _ = command(["jobmanager", "job.py", "--config", "x"], environ)
    assert "--fromSavepoint" not in program
    assert program[-4:] == ["-py", "job.py", "--config", "x"]
    for number in (1, 2):
        metadata = tmp_path / "state" / "checkpoints" / "job" / f"chk-{number}" / "_metadata"
        metadata.parent.mkdir(parents=True)
        metadata.touch()
        os.utime(metadata, (number, number))
    program, _ = command(["jobmanager", "job.py"], environ)
    assert program[program.index("--fromSavepoint") + 1].endswith("chk-2")


@pytest.mark.parametrize("arguments", [[], ["jobmanager"], ["executor"]])
def test_a_wrong_role_is_refused(arguments: list[str], environ: dict[str, str]) -> None:
    with pytest.raises(BrokenConfiguration, match="container: give"):
        command(arguments, environ)
