"""`stoker executor`: runs one executor in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Adds `stoker executor`."""
    app.command("executor")(executor)


def executor(
    config: Annotated[
        Path | None, typer.Option("--config", help="stoker.toml to read; the one in this folder by default.")
    ] = None,
    shadow: Annotated[bool, typer.Option("--shadow", help="Apply nothing; every outcome is shadow.")] = False,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
) -> None:
    """Apply warm-up commands until SIGTERM or Ctrl-C, then drain."""
    from executor.__main__ import main

    arguments = ["--log-level", log_level]
    arguments += ["--config", str(config)] if config is not None else []
    arguments += ["--shadow"] if shadow else []
    raise typer.Exit(main(arguments))
