"""Make the ONNX models from the installed MiniLM package: `python -m connectors.encoders.export`.

There is one for each precision, and all are made unless one is named, so that the setting can be changed at any time.
Needs neither torch nor a network and takes a few seconds. Each file is written beside its place and moved there, the
manifest last: whoever looks sees an old complete export, none, or the new one. A second run finds its work done.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np

from connectors.encoders.graph import BertShape, sentence_encoder
from connectors.encoders.manifest import (
    EXPORT_VERSION,
    MANIFEST_FILE,
    MODEL_FILE,
    TOKENIZER_FILE,
    Manifest,
    read_manifest,
)
from connectors.encoders.source import POOLING, model_folder, sha256_of
from connectors.settings import EncoderSettings, Precision
from schemas.errors import BrokenConfiguration, StokerError

PRECISIONS: tuple[Precision, ...] = get_args(Precision)


def _place(data: bytes, path: Path) -> None:
    """Write a file so that nobody sees half of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _is_current(out: Path, precision: Precision, weights_sha256: str, tokenizer_sha256: str) -> bool:
    try:
        manifest = read_manifest(out, precision)
    except BrokenConfiguration:
        return False
    return (manifest.weights_sha256, manifest.tokenizer_sha256) == (weights_sha256, tokenizer_sha256)


def export(out: Path, precision: Precision, source: Path | None = None) -> bool:
    """Export one precision; whether anything had to be made.

    Args:
        out: the folder of all precisions.
        source: folder of the original; the installed package's by default.

    Raises:
        StackFault: the original is missing.
        BrokenConfiguration: `out` cannot be written.
    """
    source = source or model_folder()
    weights_sha256 = sha256_of(source / "model.safetensors")
    tokenizer = (source / TOKENIZER_FILE).read_bytes()
    tokenizer_sha256 = sha256_of(source / TOKENIZER_FILE)
    if _is_current(out, precision, weights_sha256, tokenizer_sha256):
        return False

    from safetensors.numpy import load_file

    shape = BertShape.of(json.loads((source / "config.json").read_text(encoding="utf-8")))
    raw = load_file(source / "model.safetensors")
    weights = {
        name.removeprefix("bert."): value.astype(np.float32) if value.dtype.kind == "f" else value
        for name, value in raw.items()
    }
    model: bytes = sentence_encoder(weights, shape, precision).SerializeToString()
    folder = out / precision
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST_FILE).unlink(missing_ok=True)
        _place(model, folder / MODEL_FILE)
        _place(tokenizer, folder / TOKENIZER_FILE)
        manifest = Manifest(
            export_version=EXPORT_VERSION,
            weights_sha256=weights_sha256,
            tokenizer_sha256=tokenizer_sha256,
            onnx_sha256=sha256_of(folder / MODEL_FILE),
            pooling=POOLING,
            precision=precision,
            dimension=shape.width,
            positions=len(weights["embeddings.position_embeddings.weight"]),
        )
        _place(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n", folder / MANIFEST_FILE)
    except OSError as fault:
        raise BrokenConfiguration(f"encoder.model: cannot write to {folder}: {fault}") from fault
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m connectors.encoders.export", description=export.__doc__)
    default = EncoderSettings().model
    parser.add_argument("--out", type=Path, default=default, help=f"folder for the models (default {default})")
    parser.add_argument("--precision", choices=PRECISIONS, help="only this one")
    asked = parser.parse_args(arguments)
    try:
        for precision in [asked.precision] if asked.precision else PRECISIONS:
            made = export(asked.out, precision)
            print(f"{asked.out / precision / MODEL_FILE}: {'made' if made else 'up to date'}")
    except StokerError as fault:
        print(f"export: {fault}", file=sys.stderr)
        return fault.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
