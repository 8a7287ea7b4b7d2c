"""`stoker explain COMMAND_ID`: why a command was sent, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer


def register(app: typer.Typer) -> None:
    """Adds `explain`."""
    app.command("explain")(explain)


def explain(
    command_id: Annotated[str, typer.Argument(help="Of the command; its first digits are enough.")],
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", help="JSON lines or an export of a topic, or a folder of them, instead of the broker; repeatable."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--json", help="Also write all that was found as JSON.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="stoker.toml to read.")] = None,
    bootstrap: Annotated[str | None, typer.Option(help="Kafka brokers, above what the configuration says.")] = None,
) -> None:
    """Tell why a command was sent: reason, worth, cost, budget, what lost beside it, and what became of it."""
    from stoker.explain import findings, records, story

    def read() -> Iterable[msgspec.Struct]:
        return records.messages(file, findings.KINDS) if file else _from_kafka(findings.KINDS, config, bootstrap)

    found = findings.find(command_id, read)
    typer.echo(story.tell(found))
    if out is not None:
        out.write_text(json.dumps(story.as_json(found), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _from_kafka(
    kinds: tuple[type[msgspec.Struct], ...], config: Path | None, bootstrap: str | None
) -> Iterator[msgspec.Struct]:
    from connectors.kafka import KafkaRecordConsumer
    from schemas import PoisonMessage
    from schemas.codec import Reader
    from schemas.topics import COMMANDS, INSIGHTS, OUTCOMES
    from stoker.config import read

    kafka = read(config).kafka
    if bootstrap is not None:
        kafka = kafka.model_copy(update={"bootstrap": bootstrap})
    reader = Reader[msgspec.Struct](*kinds)
    with KafkaRecordConsumer(kafka, client_id="stoker-explain") as consumer:
        for topic in (COMMANDS, OUTCOMES, INSIGHTS):
            for record in consumer.read_to_end(kafka.topic(topic)):
                if record.value is None:
                    continue
                try:
                    yield reader.decode(record.value)
                except PoisonMessage:
                    continue  # an insight of another kind
