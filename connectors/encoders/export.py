"""Make the ONNX model from the installed MiniLM package: `python -m connectors.encoders.export [--out DIR]`.

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
from connectors.settings import EncoderSettings
from schemas.errors import BrokenConfiguration, StokerError

PRECISION = "fp32"


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


def _is_current(out: Path, weights_sha256: str, tokenizer_sha256: str) -> bool:
    try:
        manifest = read_manifest(out)
    except BrokenConfiguration:
        return False
    return (manifest.weights_sha256, manifest.tokenizer_sha256) == (weights_sha256, tokenizer_sha256)


def export(out: Path, source: Path | None = None) -> bool:
    """Export into `out`; whether anything had to be made.

    Args:
        source: folder of the original; the installed package's by default.

    Raises:
        StackFault: the original is missing.
        BrokenConfiguration: `out` cannot be written.
    """
    source = source or model_folder()
    weights_sha256 = sha256_of(source / "model.safetensors")
    tokenizer = (source / TOKENIZER_FILE).read_bytes()
    tokenizer_sha256 = sha256_of(source / TOKENIZER_FILE)
    if _is_current(out, weights_sha256, tokenizer_sha256):
        return False

    from safetensors.numpy import load_file

    shape = BertShape.of(json.loads((source / "config.json").read_text(encoding="utf-8")))
    raw = load_file(source / "model.safetensors")
    weights = {
        name.removeprefix("bert."): value.astype(np.float32) if value.dtype.kind == "f" else value
        for name, value in raw.items()
    }
    model: bytes = sentence_encoder(weights, shape).SerializeToString()
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / MANIFEST_FILE).unlink(missing_ok=True)
        _place(model, out / MODEL_FILE)
        _place(tokenizer, out / TOKENIZER_FILE)
        manifest = Manifest(
            export_version=EXPORT_VERSION,
            weights_sha256=weights_sha256,
            tokenizer_sha256=tokenizer_sha256,
            onnx_sha256=sha256_of(out / MODEL_FILE),
            pooling=POOLING,
            precision=PRECISION,
            dimension=shape.width,
            positions=len(weights["embeddings.position_embeddings.weight"]),
        )
        _place(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n", out / MANIFEST_FILE)
    except OSError as fault:
        raise BrokenConfiguration(f"encoder.model: cannot write to {out}: {fault}") from fault
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m connectors.encoders.export", description=export.__doc__)
    default = EncoderSettings().model
    parser.add_argument("--out", type=Path, default=default, help=f"folder for the model (default {default})")
    out = parser.parse_args(arguments).out
    try:
        made = export(out)
    except StokerError as fault:
        print(f"export: {fault}", file=sys.stderr)
        return fault.exit_code
    print(f"{out / MODEL_FILE}: {'made' if made else 'up to date'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
