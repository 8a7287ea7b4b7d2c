"""The bytes and the schemas of every released version: a change that breaks a reader fails here.

Golden files are written once, when a message is first used (`python -m tests.schemas.test_golden` writes the missing
ones and never touches an existing one).
"""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from schemas import MESSAGES, decode, encode
from schemas.export import CONTENT, EXPORTED, breaks, json_schema, render
from tests.schemas.examples import EXAMPLES

GOLDEN = Path(__file__).parent / "golden"
TOPIC_OF = {kind: topic for topic, kinds in CONTENT.items() for kind in kinds}


def golden_file(name: str) -> Path:
    return GOLDEN / "messages" / f"{name}.1.json"


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_golden_record_is_read_as_it_was_meant(name: str) -> None:
    example = EXAMPLES[name]
    assert decode(golden_file(name).read_bytes(), type(example)) == example


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_we_write_today_is_what_the_golden_record_says(name: str) -> None:
    assert json.loads(encode(EXAMPLES[name])) == json.loads(golden_file(name).read_bytes())


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_fills_every_field(name: str) -> None:
    written = json.loads(encode(EXAMPLES[name]))
    missing = [
        field.encode_name for field in msgspec.structs.fields(EXAMPLES[name]) if field.encode_name not in written
    ]
    assert missing == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_satisfies_its_exported_schema(name: str) -> None:
    schema = json_schema(TOPIC_OF[type(EXAMPLES[name])])
    jsonschema.validate(json.loads(encode(EXAMPLES[name])), schema)


def test_every_message_has_an_example() -> None:
    assert {type(example) for example in EXAMPLES.values()} == set(MESSAGES)


@pytest.mark.parametrize("topic", CONTENT, ids=lambda topic: topic.name)
def test_the_exported_schema_is_the_code_s(topic) -> None:
    file = EXPORTED / f"{topic.name}-value.json"
    assert file.read_bytes() == render(json_schema(topic)), "run `stoker schema export`"


@pytest.mark.parametrize("topic", CONTENT, ids=lambda topic: topic.name)
def test_no_reader_of_the_released_schema_breaks(topic) -> None:
    released = json.loads((GOLDEN / "topics" / f"{topic.name}-value.1.json").read_bytes())
    assert breaks(released, json_schema(topic)) == []


def test_unknown_fields_are_ignored() -> None:
    example = EXAMPLES["reward_event"]
    record = encode(example)[:-1] + b',"field_of_the_future":[1,{"a":2}]}'
    assert decode(record, type(example)) == example


def test_a_registry_prefix_is_tolerated() -> None:
    example = EXAMPLES["policy"]
    assert decode(b"\0\0\0\0\7" + encode(example), type(example)) == example


def write_missing() -> None:
    for name, example in EXAMPLES.items():
        if not golden_file(name).exists():
            golden_file(name).write_bytes(msgspec.json.format(encode(example)) + b"\n")
    for topic in CONTENT:
        file = GOLDEN / "topics" / f"{topic.name}-value.1.json"
        if not file.exists():
            file.write_bytes(render(json_schema(topic)))


if __name__ == "__main__":
    write_missing()
