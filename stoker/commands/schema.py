"""`stoker schema export|check`: the JSON Schemas of the topics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Adds the `schema` group."""
    group = typer.Typer(help="JSON Schemas of the topics, for a registry.", no_args_is_help=True)
    group.command("export")(export)
    group.command("check")(check)
    app.add_typer(group, name="schema")


def export(
    to: Annotated[Path | None, typer.Option(help="Folder to write to; the project's own by default.")] = None,
) -> None:
    """Write <topic>-value.json for every topic."""
    from schemas.export import EXPORTED
    from schemas.export import export as write

    for file in write(to or EXPORTED):
        typer.echo(file.name)


def check(
    against: Annotated[
        Path | None, typer.Option(help="Folder of <topic>-value.json to compare with; the exported ones by default.")
    ] = None,
) -> None:
    """Compare the code with exported schemas: exit 1 if a reader of theirs would break."""
    from schemas import BrokenConfiguration
    from schemas.export import CONTENT, EXPORTED, breaks, json_schema

    folder = against or EXPORTED
    if not folder.is_dir():
        raise BrokenConfiguration(f"{folder}: no such folder; write one with `stoker schema export --to {folder}`")
    failed = False
    for topic in CONTENT:
        file = folder / f"{topic.name}-value.json"
        found = (
            breaks(json.loads(file.read_bytes()), json_schema(topic)) if file.exists() else [f"{file.name} is missing"]
        )
        typer.echo(f"{topic.name:24} {'ok' if not found else 'BREAKS'}")
        for sentence in found:
            failed = True
            typer.echo(f"  {sentence}")
    raise typer.Exit(1 if failed else 0)
