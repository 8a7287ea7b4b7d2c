"""docker-compose.yml is the same stack as `stoker stack up`, and valid by the Compose Specification's schema."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from connectors.configuration import load
from executor.settings import ExecutorTree
from schemas.topics import MAX_MESSAGE_BYTES, TOPICS
from stoker.commands import stack as commands
from stoker.simulator.__main__ import parse_arguments
from stoker.stack import topics
from stoker.stack.engines import EngineConfig
from stoker.stack.paths import PROJECT
from stoker.stack.stack import StackConfig

COMPOSE = PROJECT / "docker-compose.yml"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load(COMPOSE.read_text())


def published(service: dict[str, Any]) -> list[int]:
    ports = [entry.rsplit(":", 2) for entry in service.get("ports", [])]
    assert all(host == "127.0.0.1" for host, _, _ in ports), "nothing of a test stack is open to the network"
    return [int(port) for _, port, _ in ports]


def default(name: str) -> Any:
    """Default of a flag of `stoker stack up`."""
    return inspect.signature(commands.up).parameters[name].default


def test_it_is_valid_by_the_schema(compose: dict[str, Any]) -> None:
    schema = json.loads(Path(__file__).with_name("compose-spec.json").read_text())
    jsonschema.Draft7Validator(schema).validate(compose)


def test_it_has_the_services_of_the_stack(compose: dict[str, Any]) -> None:
    engines = {f"engine-r{index}" for index in range(default("engines"))}
    flink = {"jobmanager", "taskmanager"}
    assert set(compose["services"]) == {"kafka", "redis", "topics", "executor"} | engines | flink


def test_it_publishes_the_ports_of_the_stack(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert published(services["kafka"]) == [StackConfig().kafka.port] == [default("kafka_port")]
    assert published(services["redis"]) == [StackConfig().redis.port] == [default("redis_port")]
    assert published(services["jobmanager"]) == [default("flink_port")]
    assert published(services["executor"]) == [ExecutorTree().executor.admin_port]
    for index in range(default("engines")):
        events = default("events_port") + 2 * index
        assert published(services[f"engine-r{index}"]) == [default("engine_port") + index, events, events + 1]


def test_its_simulators_are_started_like_ours(compose: dict[str, Any]) -> None:
    for index in range(default("engines")):
        ours = EngineConfig(f"r{index}", default("engine_port") + index, default("events_port") + 2 * index)
        theirs = compose["services"][f"engine-r{index}"]["command"]
        assert theirs[0] == ours.command[2]
        wanted = parse_arguments([*ours.command[3:], "--host", "0.0.0.0"])
        assert parse_arguments(theirs[1:]) == wanted


def test_its_one_shot_service_makes_the_topics(compose: dict[str, Any]) -> None:
    service = compose["services"]["topics"]
    assert service["command"] == [topics.__name__, "kafka:19092"]
    assert inspect.signature(topics.create_topics).parameters["topics"].default is TOPICS
    for name in ("jobmanager", "taskmanager", "executor"):
        assert compose["services"][name]["depends_on"]["topics"] == {"condition": "service_completed_successfully"}
    broker = compose["services"]["kafka"]["environment"]
    assert broker["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert int(broker["KAFKA_MESSAGE_MAX_BYTES"]) == MAX_MESSAGE_BYTES


def test_its_executor_is_configured_with_its_engines(
    compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in compose["services"]["executor"]["environment"].items():
        monkeypatch.setenv(name, value)
    settings = load(ExecutorTree)
    assert settings.kafka.bootstrap == "kafka:19092"
    assert [engine.url for engine in settings.executor.engines] == ["http://engine-r0:8100", "http://engine-r1:8101"]


@pytest.mark.parametrize("image", ["flink", "executor"])
def test_what_an_image_copies_exists(image: str) -> None:
    for line in (PROJECT / "deploy" / "images" / image / "Dockerfile").read_text().splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and not words[1].startswith("--from"):
            assert (PROJECT / words[1]).exists(), line
