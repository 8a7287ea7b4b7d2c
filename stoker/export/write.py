"""Records of a topic into a Parquet file: streamed in row groups, with place, time and key of each record."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from connectors.kafka.base import Record
from schemas import TOPICS, BrokenConfiguration, PoisonMessage
from schemas.codec import Reader
from schemas.export import CONTENT, json_schema, render
from schemas.topics import Topic
from stoker.export.columns import Column, columns_of

ROWS = 10_000
"""Rows of a group, and how many are in memory at a time."""


@dataclass
class Exported:
    """What became of the records.

    Attributes:
        rows: written.
        outside: of another time than was asked for.
        tombstones: records without a value.
        unreadable: no message of this topic; `first_fault` says where and why.
    """

    rows: int = 0
    outside: int = 0
    tombstones: int = 0
    unreadable: int = 0
    first_fault: str = ""


@dataclass(frozen=True)
class Span:
    """Record times from the first to before the second; None for no bound."""

    from_ms: int | None = None
    until_ms: int | None = None

    def holds(self, at_ms: int) -> bool:
        """Whether a record time is within."""
        return (self.from_ms is None or at_ms >= self.from_ms) and (self.until_ms is None or at_ms < self.until_ms)


def topic_of(name: str) -> Topic:
    """The topic of a name, without prefix.

    Raises:
        BrokenConfiguration: there is none, or it has no messages yet.
    """
    for topic in CONTENT:
        if topic.name == name:
            return topic
    known = ", ".join(topic.name for topic in CONTENT)
    why = "has no messages yet" if any(topic.name == name for topic in TOPICS) else "is no topic"
    raise BrokenConfiguration(f"--topic {name} {why}; there are {known}")


def write_parquet(records: Iterable[Record], topic: Topic, out: Path, span: Span, with_text: bool) -> Exported:
    """Writes all records of a span; the file appears when it is whole.

    Raises:
        BrokenConfiguration: the file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [*_places(), *_messages(topic, with_text)]
    schema = pa.schema([(column.name, column.type) for column in columns]).with_metadata(
        {"stoker.topic": topic.name, "stoker.json_schema": render(json_schema(topic))}
    )
    done, reader = Exported(), Reader[msgspec.Struct](*CONTENT[topic])
    part = out.with_name(out.name + ".part")
    try:
        with pq.ParquetWriter(part, schema, compression="zstd") as writer:
            rows: list[tuple[Record, msgspec.Struct]] = []
            for record in records:
                message = _read(record, reader, span, done)
                if message is not None:
                    rows.append((record, message))
                if len(rows) == ROWS:
                    writer.write_table(_table(rows, columns, schema))
                    rows.clear()
            if rows:
                writer.write_table(_table(rows, columns, schema))
        part.replace(out)
    except OSError as fault:
        raise BrokenConfiguration(f"--out {out} cannot be written ({fault.strerror or fault})") from None
    finally:
        part.unlink(missing_ok=True)
    return done


def time_of(text: str, option: str) -> int:
    """Milliseconds of an ISO time (UTC where it names no zone) or of plain milliseconds.

    Raises:
        BrokenConfiguration: it is neither.
    """
    if text.isdigit():
        return int(text)
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise BrokenConfiguration(f"{option} {text}: not a time, such as 2026-11-30T10:00 or 1796032800000") from None
    return int((at if at.tzinfo else at.replace(tzinfo=datetime.UTC)).timestamp() * 1000)


def lines(path: Path, topic: Topic) -> Iterable[Record]:
    """The lines of a file as records; their record time is their event time.

    Raises:
        BrokenConfiguration: the file cannot be read.
    """
    kinds = Reader[msgspec.Struct](*CONTENT[topic])
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file):
                if line.strip():
                    yield Record(topic.name, 0, number, _event_time_ms(line, kinds), None, line.strip())
    except OSError as fault:
        raise BrokenConfiguration(f"--input {path} cannot be read ({fault.strerror})") from None


def _event_time_ms(line: bytes, kinds: Reader[msgspec.Struct]) -> int:
    try:
        at_ms: int = kinds.decode(line).event_time_ms  # type: ignore[attr-defined]
    except PoisonMessage:
        return 0  # told when it is written
    return at_ms


def _read(record: Record, reader: Reader[msgspec.Struct], span: Span, done: Exported) -> msgspec.Struct | None:
    if not span.holds(record.timestamp_ms):
        done.outside += 1
        return None
    if record.value is None:
        done.tombstones += 1
        return None
    try:
        message = reader.decode(record.value)
    except PoisonMessage as poison:
        done.unreadable += 1
        place = f"partition {record.partition}, offset {record.offset}"
        done.first_fault = done.first_fault or f"{place}: {poison}"
        return None
    done.rows += 1
    return message


def _table(rows: list[tuple[Record, msgspec.Struct]], columns: list[Column], schema: Any) -> Any:
    import pyarrow as pa

    arrays = [pa.array([column.value(row) for row in rows], type=column.type) for column in columns]
    return pa.Table.from_arrays(arrays, schema=schema)


def _places() -> list[Column]:
    """Where a record lay. Its key is an id by every topic's definition, never a text."""
    import pyarrow as pa

    return [
        Column("record_partition", pa.int64(), lambda row: row[0].partition),
        Column("record_offset", pa.int64(), lambda row: row[0].offset),
        Column("record_at_ms", pa.int64(), lambda row: row[0].timestamp_ms),
        Column(
            "record_key", pa.string(), lambda row: None if row[0].key is None else row[0].key.decode("utf-8", "replace")
        ),
    ]


def _messages(topic: Topic, with_text: bool) -> list[Column]:
    return [Column(column.name, column.type, _of_message(column)) for column in columns_of(CONTENT[topic], with_text)]


def _of_message(column: Column) -> Any:
    value = column.value
    return lambda row: value(row[1])
