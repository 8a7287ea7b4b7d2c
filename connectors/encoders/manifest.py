"""What an exported model says about itself: `encoder.json`, written last, so that its presence means 'complete'.

Each precision is an export of its own, in a folder of that name, so that they lie side by side.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from connectors.encoders.source import sha256_of
from connectors.settings import Precision
from schemas.errors import BrokenConfiguration

MODEL_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
MANIFEST_FILE = "encoder.json"
EXPORT_VERSION = 1
"""Raised when the graph changes, so that older exports are made anew."""


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
    precision: Precision
    dimension: int
    positions: int


def read_manifest(model: Path, precision: Precision) -> Manifest:
    """The manifest of one precision of a model, its files checked against it.

    Args:
        model: the folder with a folder for each precision.

    Raises:
        BrokenConfiguration: no complete export of this precision lies there, or its files were changed.
    """
    folder = model / precision
    cure = f"make it with `python -m connectors.encoders.export --out {model} --precision {precision}`"
    try:
        manifest = msgspec.json.decode((folder / MANIFEST_FILE).read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise BrokenConfiguration(f"encoder.model: no exported model in {folder}; {cure}") from None
    except (OSError, msgspec.DecodeError) as fault:
        raise BrokenConfiguration(f"encoder.model: {folder / MANIFEST_FILE}: {fault}; {cure}") from None
    if manifest.export_version != EXPORT_VERSION:
        raise BrokenConfiguration(f"encoder.model: {folder} was exported by another version of Stoker; {cure}")
    if manifest.precision != precision:
        raise BrokenConfiguration(f"encoder.precision: the model in {folder} is of {manifest.precision}; {cure}")
    for name, expected in ((MODEL_FILE, manifest.onnx_sha256), (TOKENIZER_FILE, manifest.tokenizer_sha256)):
        path = folder / name
        if not path.is_file() or sha256_of(path) != expected:
            raise BrokenConfiguration(f"encoder.model: {path} is missing or was changed; {cure}")
    return manifest
