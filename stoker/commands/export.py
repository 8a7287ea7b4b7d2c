"""`stoker export`: a topic as a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from connectors.kafka import Record
    from schemas.topics import Topic


def register(app: typer.Typer) -> None:
    """Adds `export`."""
    app.command("export")(export)


def export(
    topic: Annotated[str, typer.Option(help="Without prefix, such as llm.requests.")],
    out: Annotated[Path, typer.Option(help="The Parquet file; an older one is replaced.")],
    from_: Annotated[
        str | None, typer.Option("--from", help="Earliest record time: 2026-11-30T10:00 (UTC) or milliseconds.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Record time before which it ends.")] = None,
    with_text: Annotated[
        bool, typer.Option("--with-text", help="Also export what people wrote, and payloads of dead letters.")
    ] = False,
    input_: Annotated[
        Path | None, typer.Option("--input", help="Read a file of JSON lines instead of the broker.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="stoker.toml to read.")] = None,
    bootstrap: Annotated[str | None, typer.Option(help="Kafka brokers, above what the configuration says.")] = None,
) -> None:
    """Write a topic's records, as far as it has them now, to a Parquet file with its schema."""
    from stoker.export.write import Span, lines, time_of, topic_of, write_parquet

    found = topic_of(topic)
    span = Span(
        None if from_ is None else time_of(from_, "--from"), None if until is None else time_of(until, "--until")
    )
    records = _records(found, config, bootstrap) if input_ is None else lines(input_, found)
    done = write_parquet(records, found, out, span, with_text)
    typer.echo(f"{done.rows} rows of {found.name} in {out}")
    told = ((done.outside, "outside of the time"), (done.tombstones, "tombstones"))
    for count, what in told:
        if count:
            typer.echo(f"{count} records left out: {what}", err=True)
    if done.unreadable:
        typer.echo(f"{done.unreadable} records left out: unreadable, the first at {done.first_fault}", err=True)


def _records(topic: Topic, config: Path | None, bootstrap: str | None) -> Iterator[Record]:
    from connectors.kafka import KafkaRecordConsumer
    from stoker.config import read

    kafka = read(config).kafka
    if bootstrap is not None:
        kafka = kafka.model_copy(update={"bootstrap": bootstrap})
    with KafkaRecordConsumer(kafka, client_id="stoker-export") as consumer:
        yield from consumer.read_to_end(kafka.topic(topic))
