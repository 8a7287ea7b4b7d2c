"""Reading stoker.toml: which source wins, and what a person is told about a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from connectors.configuration import keys, load
from connectors.settings import KafkaSettings, RedisSettings, Section
from schemas import BrokenConfiguration


class Whole(Section):
    kafka: KafkaSettings = KafkaSettings()
    redis: RedisSettings = RedisSettings()


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    file = tmp_path / "stoker.toml"
    file.write_text('[kafka]\nbootstrap = "file:1"\ntopic_prefix = "file."\ngroup_prefix = "file"\n')
    return file


def test_a_flag_beats_the_environment_and_the_environment_the_file(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_KAFKA__BOOTSTRAP", "env:1")
    monkeypatch.setenv("STOKER_KAFKA__TOPIC_PREFIX", "env.")
    settings = load(Whole, toml, {"kafka": {"bootstrap": "flag:1"}})
    assert settings.kafka.bootstrap == "flag:1"
    assert settings.kafka.topic_prefix == "env."
    assert settings.kafka.group_prefix == "file"


def test_without_a_file_the_defaults_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(Whole) == Whole()


def test_an_unknown_key_names_the_nearest_known_one(toml: Path) -> None:
    toml.write_text('[kafka]\nboostrap = "x:1"\n[reddis]\nurl = "redis://x"\n')
    with pytest.raises(BrokenConfiguration) as caught:
        load(Whole, toml)
    assert "kafka.boostrap: unknown key; did you mean kafka.bootstrap?" in str(caught.value)
    assert "reddis: unknown key; did you mean redis?" in str(caught.value)


def test_an_unknown_variable_is_an_error_too(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_KAFKA__BOOTSTRAPS", "x:1")
    with pytest.raises(BrokenConfiguration, match=r"kafka\.bootstraps: unknown key; did you mean kafka\.bootstrap"):
        load(Whole, toml)


def test_a_variable_of_an_unknown_section_is_an_error(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_KAFAK__BOOTSTRAP", "x:1")
    with pytest.raises(BrokenConfiguration, match=r"STOKER_KAFAK__BOOTSTRAP.*did you mean kafka"):
        load(Whole, toml)


def test_a_wrong_value_is_told_without_the_value(toml: Path) -> None:
    toml.write_text('[redis]\nurl = "redis://user:hunter2@host"\n')
    with pytest.raises(BrokenConfiguration) as caught:
        load(Whole, toml)
    assert "redis" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_missing_file_and_broken_toml_are_told(tmp_path: Path) -> None:
    with pytest.raises(BrokenConfiguration, match="no such file"):
        load(Whole, tmp_path / "absent.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[kafka\n")
    with pytest.raises(BrokenConfiguration, match="not valid TOML"):
        load(Whole, broken)


class OnlyKafka(BaseModel):
    model_config = ConfigDict(extra="ignore")
    kafka: KafkaSettings = KafkaSettings()


def test_a_process_leaves_the_sections_of_others_alone(toml: Path) -> None:
    toml.write_text(toml.read_text() + '[redis]\nurl = "redis://elsewhere"\n')
    assert load(OnlyKafka, toml).kafka.bootstrap == "file:1"


def test_keys_lists_sections_and_fields() -> None:
    assert {"kafka", "kafka.bootstrap", "redis.url"} <= set(keys(Whole))


def test_an_unknown_key_in_a_list_of_sections_names_the_nearest_known_one(toml: Path) -> None:
    class One(Section):
        timeout_ms: int = 1

    class Many(Section):
        sources: tuple[One, ...] = ()

    toml.write_text("[[sources]]\ntimeout_ms = 2\n[[sources]]\ntimeout = 3\n")
    with pytest.raises(
        BrokenConfiguration, match=r"sources\.1\.timeout: unknown key; did you mean sources\.timeout_ms\?"
    ):
        load(Many, toml)
