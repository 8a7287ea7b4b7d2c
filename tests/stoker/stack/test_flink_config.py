from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from jobs.settings import WarmupSettings
from schemas.errors import StackFault
from stoker.stack import paths
from stoker.stack.flink_config import LATER_C2, NO_C2, FlinkConfig, FlinkFolder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FlinkFolder:
    for name, file in (("flink", "flink-sql-connector-kafka-x.jar"), ("stoker", "stoker-flink.jar")):
        jar = tmp_path / "cache" / "jars" / name / file
        jar.parent.mkdir(parents=True)
        jar.touch()
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))
    return FlinkFolder(tmp_path / "cluster")


def test_it_is_what_the_design_asks_for(folder: FlinkFolder) -> None:
    folder.prepare(FlinkConfig(), 8081, 6123, parallelism=3)
    config = yaml.safe_load((folder.conf / "config.yaml").read_text())
    assert config["python"]["execution-mode"] == "thread"
    assert config["taskmanager"]["numberOfTaskSlots"] == 1
    assert config["parallelism"]["default"] == 3
    checkpointing = config["execution"]["checkpointing"]
    assert (checkpointing["mode"], checkpointing["interval"]) == ("EXACTLY_ONCE", "5000 ms")
    assert "unaligned" not in checkpointing
    assert checkpointing["externalized-checkpoint-retention"] == "RETAIN_ON_CANCELLATION"
    assert config["heartbeat"] == {"interval": 1000, "timeout": 5000}
    assert config["restart-strategy"]["type"] == "fixed-delay"
    assert "Prometheus" in config["metrics"]["reporter"]["prom"]["factory"]["class"]
    assert "--add-opens" in config["env"]["java"]["opts"]["all"]


@pytest.mark.parametrize(("records", "compiler"), [(256, NO_C2), (1, LATER_C2)])
def test_java_compiles_for_good_only_where_records_come_one_by_one(records: int, compiler: str) -> None:
    assert FlinkConfig.of_job(WarmupSettings(bundle_records=records)).compiler == compiler


def test_this_python_comes_first_on_path_and_the_jars_are_in_lib(folder: FlinkFolder) -> None:
    folder.prepare(FlinkConfig(), 8081, 6123, parallelism=1)
    environment = folder.environment()
    assert environment["PATH"].split(":")[0] == str(paths.python_bin())
    jars = {path.name for path in Path(environment["FLINK_LIB_DIR"]).iterdir()}
    assert {name.split("-2.")[0] for name in jars} >= {"flink-dist", "flink-python"}
    assert "flink-sql-connector-kafka-x.jar" in jars


def test_a_missing_connector_names_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    with pytest.raises(StackFault, match="make setup"):
        FlinkFolder(tmp_path / "cluster").prepare(FlinkConfig(), 8081, 6123, parallelism=1)
