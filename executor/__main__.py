"""`python -m executor --config stoker.toml`: the executor alone, without the rest of Stoker's command line."""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import signal
import sys
from pathlib import Path
from typing import Any

from connectors.configuration import load
from executor.logs import configure
from executor.process import serve
from executor.settings import ExecutorTree
from schemas import StokerError


def main(arguments: list[str] | None = None) -> int:
    """Runs one executor; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m executor", description="Applies warm-up commands.")
    parser.add_argument("--config", type=Path, help="stoker.toml to read; the one in this folder by default")
    parser.add_argument("--shadow", action="store_true", help="apply nothing; every outcome is shadow")
    parser.add_argument("--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    given = parser.parse_args(arguments)
    configure(given.log_level)
    # For the person on call: `kill -USR1` writes every thread's stack to the log of a process that seems stuck.
    faulthandler.register(signal.SIGUSR1)
    flags: dict[str, Any] = {"executor": {"shadow": True}} if given.shadow else {}
    try:
        return asyncio.run(serve(load(ExecutorTree, given.config, flags)))
    except StokerError as error:
        print(f"executor: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
