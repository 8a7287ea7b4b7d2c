"""What an exported model says about itself: `encoder.json`, written last, so that its presence means 'complete'."""

from __future__ import annotations

from pathlib import Path

import msgspec

from connectors.encoders.source import sha256_of
from schemas.errors import BrokenConfiguration

MODEL_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
MANIFEST_FILE = "encoder.json"
EXPORT_VERSION = 1
"""Raised when `graph` changes, so that older exports are made anew."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The identity of one exported model.

    Attributes:
        weights_sha256: digest of the original weights; with the tokenizer's it makes the fingerprint.
        onnx_sha256: digest of the exported file, so that a damaged or exchanged one is noticed.
        positions: longest token sequence that the model can take.
    """

    export_version: int
    weights_sha256: str
    tokenizer_sha256: str
    onnx_sha256: str
    pooling: str
    precision: str
    dimension: int
    positions: int


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder, its files checked against it.

    Raises:
        BrokenConfiguration: no complete export lies there, or its files were changed.
    """
    cure = f"make it with `python -m connectors.encoders.export --out {folder}`"
    try:
        manifest = msgspec.json.decode((folder / MANIFEST_FILE).read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise BrokenConfiguration(f"encoder.model: no exported model in {folder}; {cure}") from None
    except (OSError, msgspec.DecodeError) as fault:
        raise BrokenConfiguration(f"encoder.model: {folder / MANIFEST_FILE}: {fault}; {cure}") from None
    if manifest.export_version != EXPORT_VERSION:
        raise BrokenConfiguration(f"encoder.model: {folder} was exported by another version of Stoker; {cure}")
    for name, expected in ((MODEL_FILE, manifest.onnx_sha256), (TOKENIZER_FILE, manifest.tokenizer_sha256)):
        path = folder / name
        if not path.is_file() or sha256_of(path) != expected:
            raise BrokenConfiguration(f"encoder.model: {path} is missing or was changed; {cure}")
    return manifest
