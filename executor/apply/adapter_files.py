"""The files of an adapter, as far as this executor sees them: are they what was announced?

A replica reads an adapter from its own disk or a shared one. Where the executor has the same path mounted it looks
before the engine loads; where it has not, nothing can be said, and the outcome says so.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from executor.memory import Recent

CONFIG_FILE = "adapter_config.json"
WEIGHT_FILES = ("adapter_model.safetensors", "adapter_model.bin", "adapter_model.pt")
"""Where PEFT keeps weights, in the order in which vLLM looks for them."""
DIGESTS_BOUND = 1_000

Stamp = tuple[int, ...]
"""Which file it is and when it changed: device, inode, size, times of its content and of its entry."""


Structure = tuple[int | None, float | None, float | None, tuple[str, ...] | None]
"""Rank, alpha, dropout and target modules of an adapter, None where its configuration tells none."""


class NoAdapter(Exception):
    """The folder is there, and what makes an adapter is not in it."""


@dataclass(frozen=True)
class AdapterFiles:
    """What lies at a source.

    Attributes:
        rank, alpha, dropout, target_modules: as its configuration tells; None where it tells none. Modules are sorted;
            a pattern that stands for them is kept as the only one.
        sha256: of the weights, in hex; None where it was not asked for.
        stamp: of the weights; another one means that they were replaced. Empty where there are none.
    """

    rank: int | None
    alpha: float | None
    dropout: float | None
    target_modules: tuple[str, ...] | None
    sha256: str | None
    bytes: int
    stamp: Stamp


class AdapterLibrary:
    """Looks at sources, and remembers the digest of what has not changed since: weights can be gigabytes."""

    def __init__(self) -> None:
        self._digests: Recent[Stamp, str] = Recent(DIGESTS_BOUND)

    async def look(self, source: str, with_digest: bool) -> AdapterFiles | None:
        """What lies there; None if the source is no folder that this executor can read.

        Raises:
            NoAdapter: it is a folder without a configuration, or, if a digest is wanted, without weights.
        """
        return await asyncio.to_thread(self._look, Path(source), with_digest)

    def _look(self, folder: Path, with_digest: bool) -> AdapterFiles | None:
        # A name that the engine resolves by itself must not be looked up in our working directory.
        if not folder.is_absolute() or not os.access(folder, os.R_OK | os.X_OK) or not folder.is_dir():
            return None
        structure = _structure(folder / CONFIG_FILE)
        weights = _first(folder, WEIGHT_FILES)
        if weights is None:
            if with_digest:
                raise NoAdapter(f"none of {', '.join(WEIGHT_FILES)} at the source")
            return AdapterFiles(*structure, None, 0, ())
        try:
            found = weights.stat()
            stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            sha256 = self._digest(weights, stamp) if with_digest else None
        except PermissionError:
            return None
        except OSError as error:
            raise NoAdapter(f"{weights.name} cannot be read: {error.strerror}") from error
        return AdapterFiles(*structure, sha256, found.st_size, stamp)

    def _digest(self, weights: Path, stamp: Stamp) -> str:
        known = self._digests.get(stamp)
        if known is None:
            with weights.open("rb") as file:
                known = hashlib.file_digest(file, "sha256").hexdigest()
            self._digests.put(stamp, known)
        return known


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _structure(config: Path) -> Structure:
    try:
        told = json.loads(config.read_bytes()) if config.is_file() else None
    except (OSError, ValueError) as error:
        raise NoAdapter(f"{config.name} at the source cannot be read") from error
    if not isinstance(told, dict):
        raise NoAdapter(f"no {config.name} at the source")
    rank, alpha, dropout = (told.get(name) for name in ("r", "lora_alpha", "lora_dropout"))
    return (
        rank if isinstance(rank, int) else None,
        float(alpha) if isinstance(alpha, int | float) else None,
        float(dropout) if isinstance(dropout, int | float) else None,
        _modules(told.get("target_modules")),
    )


def _modules(told: object) -> tuple[str, ...] | None:
    if isinstance(told, str):
        return (told,)
    return tuple(sorted(map(str, told))) if isinstance(told, list) else None
