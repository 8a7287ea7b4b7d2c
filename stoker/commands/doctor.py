"""`stoker doctor`: every part that the project needs on this machine, what is wrong with it, and the cure."""

from __future__ import annotations

import typer

from schemas.errors import StackFault


def register(app: typer.Typer) -> None:
    """Add `stoker doctor`."""
    app.command()(doctor)


def doctor() -> None:
    """Check Python, packages, torch, Java, jars, Redis, model, room and ports. Exit 3 when something is missing."""
    from stoker.doctor import findings

    found = findings()
    for finding in found:
        typer.echo(f"{'ok     ' if finding.ok else 'MISSING'}  {finding.part:<14} {finding.told}")
        if not finding.ok:
            typer.echo(f"{'':<9}{'':<14} cure: {finding.cure}")
    if not all(finding.ok for finding in found):
        raise typer.Exit(StackFault.exit_code)
