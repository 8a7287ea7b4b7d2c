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


class NoAdapter(Exception):
    """The folder is there, and what makes an adapter is not in it."""


@dataclass(frozen=True)
class AdapterFiles:
    """What lies at a source.

    Attributes:
        rank: as its configuration tells; None where it tells none.
        sha256: of the weights, in hex; None where it was not asked for.
        stamp: of the weights; another one means that they were replaced. Empty where there are none.
    """

    rank: int | None
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
        rank = _rank(folder / CONFIG_FILE)
        weights = _first(folder, WEIGHT_FILES)
        if weights is None:
            if with_digest:
                raise NoAdapter(f"none of {', '.join(WEIGHT_FILES)} at the source")
            return AdapterFiles(rank, None, 0, ())
        try:
            found = weights.stat()
            stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            sha256 = self._digest(weights, stamp) if with_digest else None
        except PermissionError:
            return None
        except OSError as error:
            raise NoAdapter(f"{weights.name} cannot be read: {error.strerror}") from error
        return AdapterFiles(rank, sha256, found.st_size, stamp)

    def _digest(self, weights: Path, stamp: Stamp) -> str:
        known = self._digests.get(stamp)
        if known is None:
            with weights.open("rb") as file:
                known = hashlib.file_digest(file, "sha256").hexdigest()
            self._digests.put(stamp, known)
        return known


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _rank(config: Path) -> int | None:
    try:
        told = json.loads(config.read_bytes()) if config.is_file() else None
    except (OSError, ValueError) as error:
        raise NoAdapter(f"{config.name} at the source cannot be read") from error
    if not isinstance(told, dict):
        raise NoAdapter(f"no {config.name} at the source")
    rank = told.get("r")
    return rank if isinstance(rank, int) else None
