"""Topics as Parquet: every field of every message comes back, texts only where asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import connectors.kafka
from connectors.kafka.base import Record
from connectors.kafka.fake import MemoryBroker, MemoryConsumer
from schemas import BrokenConfiguration, DeadLetter, Policy, RequestEvent, encode
from schemas.export import CONTENT
from schemas.topics import COMMANDS, DEAD_LETTERS, INSIGHTS, POLICY, REQUESTS, Topic
from stoker.cli import build
from stoker.export.write import Exported, Span, time_of, topic_of, write_parquet

RUN = CliRunner()
GOLDEN = Path(__file__).parents[2] / "schemas" / "golden" / "messages"
TEXTS = {"query", "payload"}


def golden(topic: Topic) -> list[bytes]:
    """The golden messages of a topic."""
    tags = {str(msgspec.inspect.type_info(kind).tag) for kind in CONTENT[topic]}  # type: ignore[attr-defined]
    found = [file.read_bytes() for file in sorted(GOLDEN.glob("*.json"))]
    return [message for message in found if json.loads(message)["schema"] in tags]


def exported(
    values: Iterable[bytes | None], topic: Topic, out: Path, span: Span | None = None, with_text: bool = True
) -> tuple[Exported, list[dict[str, Any]]]:
    """What was written and what an own reader finds of it."""
    import pyarrow.parquet as pq

    records = [Record(topic.name, 1, offset, 1000 + offset, b"k", value) for offset, value in enumerate(values)]
    done = write_parquet(records, topic, out, span or Span(), with_text)
    return done, pq.read_table(out).to_pylist()


def holds(row: Any, message: Any, kind: str) -> bool:
    """Whether a cell says what JSON says; maps come back as pairs, bodies as JSON, fields of two types renamed."""
    if isinstance(message, dict):
        if isinstance(row, str):
            return json.loads(row) == message
        if isinstance(row, list):
            return dict(row) == message
        return all(holds(row.get(name, row.get(f"{kind}_{name}")), value, kind) for name, value in message.items())
    if isinstance(message, list):
        return len(row) == len(message) and all(holds(*pair, kind) for pair in zip(row, message, strict=True))
    return bool(row == message)


@pytest.mark.parametrize("topic", CONTENT, ids=lambda topic: topic.name)
def test_every_field_of_every_message_comes_back(topic: Topic, tmp_path: Path) -> None:
    messages = golden(topic)
    assert messages
    done, rows = exported(messages, topic, tmp_path / "t.parquet")
    assert done.rows == len(rows) == len(messages)
    for row, message in zip(rows, messages, strict=True):
        told = json.loads(message)
        if topic == DEAD_LETTERS and "payload" in told:
            told["payload"] = msgspec.json.decode(message, type=DeadLetter).payload
        assert holds(row, told, told["schema"].partition("/")[0]), (row, told)


@pytest.mark.parametrize("topic", CONTENT, ids=lambda topic: topic.name)
def test_without_texts_there_is_no_column_of_any(topic: Topic, tmp_path: Path) -> None:
    _, rows = exported(golden(topic), topic, tmp_path / "t.parquet", with_text=False)
    assert not TEXTS & set(rows[0])
    with_them = exported(golden(topic), topic, tmp_path / "w.parquet")[1][0]
    assert set(with_them) - set(rows[0]) == TEXTS & set(with_them)


def test_a_persons_words_are_nowhere_in_the_file_unless_asked_for(tmp_path: Path) -> None:
    event = msgspec.structs.replace(
        msgspec.json.decode(golden(REQUESTS)[0], type=RequestEvent), query="a-most-private-question"
    )
    exported([encode(event)], REQUESTS, tmp_path / "t.parquet", with_text=False)
    _, rows = exported([encode(event)], REQUESTS, tmp_path / "w.parquet")
    assert b"a-most-private-question" not in (tmp_path / "t.parquet").read_bytes()
    assert rows[0]["query"] == "a-most-private-question"


def test_the_targets_of_commands_are_one_struct_that_names_its_kind(tmp_path: Path) -> None:
    _, rows = exported(golden(COMMANDS), COMMANDS, tmp_path / "t.parquet")
    kinds = {row["target"]["kind"] for row in rows}
    assert {"prefix", "embedding", "adapter", "response", "value", "model", "cancel"} == kinds
    prefix = next(row["target"] for row in rows if row["target"]["kind"] == "prefix")
    assert prefix["segments"]
    assert prefix["ttl_ms"] is None


def test_fields_of_two_types_are_told_apart_by_their_message(tmp_path: Path) -> None:
    _, rows = exported(golden(INSIGHTS), INSIGHTS, tmp_path / "t.parquet")
    by_kind = {row["schema"]: row for row in rows}
    assert isinstance(by_kind["pattern/1"]["pattern_state"], int)
    assert isinstance(by_kind["planner_state/1"]["planner_state_state"], str)


def test_place_time_and_key_of_a_record_come_along(tmp_path: Path) -> None:
    _, rows = exported(golden(REQUESTS), REQUESTS, tmp_path / "t.parquet")
    assert {name: rows[0][name] for name in rows[0] if name.startswith("record_")} == {
        "record_partition": 1,
        "record_offset": 0,
        "record_at_ms": 1000,
        "record_key": "k",
    }


def test_what_is_left_out_is_counted_by_its_reason(tmp_path: Path) -> None:
    good = golden(REQUESTS)[0]
    done, rows = exported(
        [good, None, b"{", good, good], REQUESTS, tmp_path / "t.parquet", Span(from_ms=1000, until_ms=1004)
    )
    assert (done.rows, done.outside, done.tombstones, done.unreadable) == (2, 1, 1, 1)
    assert done.first_fault.startswith("partition 1, offset 2: malformed_json")
    assert [row["record_offset"] for row in rows] == [0, 3]


def test_many_rows_are_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr("stoker.export.write.ROWS", 3)
    done, rows = exported(golden(REQUESTS) * 8, REQUESTS, tmp_path / "t.parquet")
    assert done.rows == len(rows) == 8
    assert pq.ParquetFile(tmp_path / "t.parquet").num_row_groups == 3


def test_no_record_makes_an_empty_table_with_all_columns_and_the_schema(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    exported([], POLICY, tmp_path / "t.parquet")
    schema = pq.read_schema(tmp_path / "t.parquet")
    assert {field.encode_name for field in msgspec.structs.fields(Policy)} <= set(schema.names)
    assert json.loads(schema.metadata[b"stoker.json_schema"])["$id"] == "warmup.policy-value"


def test_a_file_that_cannot_be_written_is_named_and_leaves_no_part(tmp_path: Path) -> None:
    with pytest.raises(BrokenConfiguration, match="cannot be written"):
        write_parquet([], POLICY, tmp_path / "absent" / "t.parquet", Span(), False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1796032800000", 1_796_032_800_000),
        ("2026-11-30T10:00", 1_796_032_800_000),
        ("2026-11-30T11:00+01:00", 1_796_032_800_000),
    ],
)
def test_times_are_iso_or_milliseconds(text: str, ms: int) -> None:
    assert time_of(text, "--from") == ms


def test_wrong_topics_and_times_are_sentences() -> None:
    with pytest.raises(BrokenConfiguration, match="is no topic; there are "):
        topic_of("llm.request")
    with pytest.raises(BrokenConfiguration, match="--until tomorrow: not a time"):
        time_of("tomorrow", "--until")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> MemoryBroker:
    made = MemoryBroker()
    made.add_topic(REQUESTS.name, 2)
    monkeypatch.setattr(connectors.kafka, "KafkaRecordConsumer", lambda *_, **__: MemoryConsumer(made))
    return made


def test_the_command_exports_a_topic_of_the_broker(broker: MemoryBroker, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    good = golden(REQUESTS)[0]
    for partition, value in ((0, good), (1, good), (1, b"rubbish")):
        broker.append(REQUESTS.name, partition, b"session", value, 5_000, ())
    out = tmp_path / "requests.parquet"
    told = RUN.invoke(build(), ["export", "--topic", "llm.requests", "--out", str(out)])
    assert told.exit_code == 0, told.output
    assert f"2 rows of llm.requests in {out}" in told.output
    assert "1 records left out: unreadable" in told.output
    assert pq.read_table(out).num_rows == 2


def test_the_command_exports_a_file_of_lines(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    events, out = tmp_path / "e.jsonl", tmp_path / "e.parquet"
    RUN.invoke(build(), ["replay", "--minutes", "0.1", "--to", str(events)])
    told = RUN.invoke(build(), ["export", "--topic", "llm.requests", "--input", str(events), "--out", str(out)])
    assert told.exit_code == 0, told.output
    table = pq.read_table(out)
    assert table.num_rows == len(events.read_bytes().splitlines())
    assert "query" not in table.column_names
