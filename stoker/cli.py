"""The `stoker` command: collects the command groups and turns our errors into sentences and exit codes.

Exit codes: 0 done, 1 a goal or check failed, 2 wrong use or configuration, 3 a part of the stack is missing or died,
130 interrupted.
"""

from __future__ import annotations

import importlib
import sys

import typer

from schemas import StokerError

GROUPS = (
    "demo",
    "stack",
    "jobs",
    "executor",
    "replay",
    "gain",
    "size",
    "rule",
    "export",
    "explain",
    "policy",
    "announce",
    "schema",
    "bench",
    "backtest",
    "doctor",
)


def build() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        name="stoker",
        help="Keeps the caches of a language-model service hot, and proves what each warm-up was worth.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for group in GROUPS:
        importlib.import_module(f"stoker.commands.{group}").register(app)
    return app


def main() -> None:
    """Runs one command. What we raise on purpose ends in a sentence; a traceback is a bug of ours."""
    try:
        build()()
    except StokerError as error:
        print(f"stoker: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except BrokenPipeError:
        raise SystemExit(0) from None


if __name__ == "__main__":
    main()
