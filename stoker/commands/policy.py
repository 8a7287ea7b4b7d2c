"""`stoker policy get|set|freeze|thaw`: the running rules, read from and written to warmup.policy."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from connectors.kafka import Record
    from connectors.settings import KafkaSettings
    from schemas import Policy

WRITER = "cli"
Config = Annotated[
    Path | None, typer.Option("--config", help="stoker.toml to read; the one in this folder by default.")
]
Scope = Annotated[str, typer.Option(help="Scope that it holds for; * where a scope has none of its own.")]
Bootstrap = Annotated[str | None, typer.Option(help="Kafka brokers, above what the configuration says.")]


def register(app: typer.Typer) -> None:
    """Adds the `policy` group."""
    group = typer.Typer(help="The running rules: read, change, freeze.", no_args_is_help=True)
    group.command("get")(get)
    group.command("set")(set_)
    group.command("freeze")(freeze)
    group.command("thaw")(thaw)
    app.add_typer(group, name="policy")


def get(config: Config = None, bootstrap: Bootstrap = None) -> None:
    """Print every section in force, one JSON object a line; sections left out are at their defaults."""
    for _, policy in sorted(_latest(_kafka(config, bootstrap)).items()):
        if not policy.deleted:
            shown = {field: getattr(policy, field) for field in ("scope", "section", "writer", "version", "body")}
            typer.echo(json.dumps(shown, ensure_ascii=False))


def set_(
    section: Annotated[str, typer.Argument(help="One of docs/configuration.md, as plan; a wrong name lists them all.")],
    values: Annotated[list[str], typer.Argument(help="key=value pairs; a value is JSON, a bare word is a string.")],
    scope: Scope = "*",
    config: Config = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Set keys of a section; its other keys stay as this command line last set them."""
    _write(_kafka(config, bootstrap), section, scope, dict(map(_pair, values)))


def freeze(
    reason: Annotated[str, typer.Argument(help="Why, for whoever finds it frozen.")],
    scope: Scope = "*",
    config: Config = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Stop every warm-up of a scope within a second. Freezes of several writers add up; `thaw` takes back this one."""
    _write(_kafka(config, bootstrap), "freeze", scope, {"frozen": True, "reason": reason})


def thaw(scope: Scope = "*", config: Config = None, bootstrap: Bootstrap = None) -> None:
    """Take the freeze of this command line back."""
    _write(_kafka(config, bootstrap), "freeze", scope, {"frozen": False, "reason": ""})


def _kafka(config: Path | None, bootstrap: str | None) -> KafkaSettings:
    from stoker.config import read

    kafka = read(config).kafka
    return kafka if bootstrap is None else kafka.model_copy(update={"bootstrap": bootstrap})


def _pair(text: str) -> tuple[str, Any]:
    from schemas import BrokenConfiguration

    key, equals, value = text.partition("=")
    if not equals or not key:
        raise BrokenConfiguration(f"{text}: write key=value, for example hold_share=0.1")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _latest(kafka: KafkaSettings) -> dict[tuple[str, str, str], Policy]:
    from connectors.kafka import KafkaRecordConsumer
    from schemas import topics

    with KafkaRecordConsumer(kafka, client_id="stoker-policy") as consumer:
        return newest(consumer.read_to_end(kafka.topic(topics.POLICY)))


def newest(records: Iterable[Record]) -> dict[tuple[str, str, str], Policy]:
    """The newest policy of every (scope, section, writer); a record that cannot be read is told and passed over.

    A freeze must get through whatever others have written.
    """
    from schemas import PoisonMessage, Policy, decode

    latest: dict[tuple[str, str, str], Policy] = {}
    for record in records:
        if record.value is None:
            continue
        try:
            policy = decode(record.value, Policy)
        except PoisonMessage as poison:
            place = f"{record.topic}, partition {record.partition}, offset {record.offset}"
            typer.echo(f"warning: {place}: no readable policy, passed over: {poison}", err=True)
            continue
        key = (policy.scope, policy.section, policy.writer)
        if key not in latest or policy.version > latest[key].version:
            latest[key] = policy
    return latest


def _write(kafka: KafkaSettings, section: str, scope: str, changes: dict[str, Any]) -> None:
    from analytics.knobs import knobs
    from analytics.policy import SECTIONS
    from connectors.kafka import KafkaRecordProducer
    from schemas import BrokenConfiguration, Policy, encode, topics

    if section not in SECTIONS:
        raise BrokenConfiguration(f"{section}: no such section; there are {', '.join(SECTIONS)}")
    known = knobs(SECTIONS[section])
    for key, value in changes.items():
        if key not in known:
            raise BrokenConfiguration(f"{section}.{key}: no such key; there are {', '.join(known)}")
        if not known[key].accepts(value):
            raise BrokenConfiguration(f"{section}.{key}: {value!r} is not allowed; range: {known[key].range}")
    before = _latest(kafka).get((scope, section, WRITER))
    now_ms = time.time_ns() // 1_000_000
    policy = Policy(
        scope=scope,
        section=section,  # type: ignore[arg-type]
        writer=WRITER,
        version=1 if before is None else before.version + 1,
        at_ms=now_ms,
        body={**(before.body if before is not None and not before.deleted else {}), **changes},
    )
    record_key = f"{scope}/{section}/{WRITER}".encode()
    with KafkaRecordProducer(kafka, client_id="stoker-policy") as producer:
        producer.send(kafka.topic(topics.POLICY), encode(policy), key=record_key, timestamp_ms=now_ms).wait()
    typer.echo(f"{scope}/{section} is at version {policy.version}: {json.dumps(policy.body, ensure_ascii=False)}")
