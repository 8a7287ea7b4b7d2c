"""Where the embedded stack finds its files and keeps its state."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import StackFault

PROJECT = Path(__file__).resolve().parents[2]
"""The checkout that this package runs from (set-up installs it as editable)."""
DEFAULT_STATE = Path(".stoker")
"""State folder in the working directory."""


def cache_folder() -> Path:
    """What `make setup` fetched (jars, the ONNX model): `.cache` of the project, or STOKER_CACHE."""
    return Path(os.environ.get("STOKER_CACHE") or PROJECT / ".cache")


def python_bin() -> Path:
    """The folder with this environment's `python`; first on PATH, where PyFlink looks (stack.md, trap 1)."""
    return Path(sys.executable).absolute().parent


def jars(name: str) -> list[Path]:
    """The jars of `deploy/jars/NAME`.

    Raises:
        StackFault: when they were not fetched.
    """
    found = sorted((cache_folder() / "jars" / name).glob("*.jar"))
    if not found:
        raise StackFault(f"the {name} jars are missing in {cache_folder() / 'jars' / name}: run `make setup`")
    return found


@dataclass(frozen=True)
class StateFolder:
    """The folder that holds everything one stack writes: data, logs and process records.

    Attributes:
        root: absolute, without symbolic links; created on first use.
    """

    root: Path

    @classmethod
    def at(cls, root: Path | str = DEFAULT_STATE) -> StateFolder:
        """The state folder at `root`, with its subfolders made."""
        folder = cls(Path(root).resolve())
        for path in (folder.root, folder.run, folder.logs):
            path.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def run(self) -> Path:
        """Process records, one JSON file each."""
        return self.root / "run"

    @property
    def logs(self) -> Path:
        """One log file per process."""
        return self.root / "logs"

    def data(self, service: str) -> Path:
        """The data folder of one service, created."""
        path = self.root / "data" / service
        path.mkdir(parents=True, exist_ok=True)
        return path
