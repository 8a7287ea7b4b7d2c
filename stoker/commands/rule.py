"""`stoker rule NAME`: one decision on a JSON input."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer


def register(app: typer.Typer) -> None:
    """Adds `rule`."""
    app.command("rule")(rule)


def rule(
    name: Annotated[str | None, typer.Argument(help="Of the rule; without one all are listed.")] = None,
    input_: Annotated[Path | None, typer.Option("--input", help="JSON file; - reads stdin.")] = None,
    variant: Annotated[
        Literal["spec", "tuned"], typer.Option("--rule", help="The reference rule, or ours where there is one.")
    ] = "spec",
    example: Annotated[bool, typer.Option("--example", help="Print an input that shows the rule.")] = False,
) -> None:
    """Run one decision, the same function that the jobs call: JSON in, JSON out."""
    from schemas import BrokenConfiguration
    from stoker.rules import RULES, decide, find

    if name is None:
        for found in RULES.values():
            typer.echo(f"{found.name:<22} {found.decision:<4} {found.summary}")
            typer.echo(f"{'':<27} {_shortened(json.dumps(found.example))}")
        typer.echo("\nstoker rule NAME --example | stoker rule NAME --input -")
        return
    if example:
        typer.echo(json.dumps(find(name).example, indent=1))
        return
    if input_ is None:
        find(name)
        raise BrokenConfiguration(f"say --input FILE, or - for stdin; `stoker rule {name} --example` prints one")
    try:
        text = sys.stdin.buffer.read() if str(input_) == "-" else input_.read_bytes()
    except OSError as fault:
        raise BrokenConfiguration(f"--input {input_} cannot be read ({fault.strerror})") from None
    typer.echo(json.dumps(decide(name, text, variant), indent=1, ensure_ascii=False))


def _shortened(text: str, cells: int = 160) -> str:
    return text if len(text) <= cells else text[: cells - 4] + " ..."
