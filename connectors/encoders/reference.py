"""The encoder to compare with: sentence-transformers on the original model, one text at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from connectors.encoders.base import Matrix, encoder_fingerprint
from connectors.encoders.source import POOLING, model_folder, sha256_of
from connectors.encoders.text import clean


class ReferenceEncoder:
    """`Encoder` by sentence-transformers. Slow to load and to run; its vectors are what the others are measured by.

    Args:
        max_tokens: where longer texts are cut.
        threads: of torch, for the whole process.

    Raises:
        StackFault: the package with the model is missing.
    """

    def __init__(self, *, max_tokens: int = 256, threads: int = 1) -> None:
        folder = model_folder()

        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(threads)
        self._model: Any = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        self._model.max_seq_length = max_tokens
        self._dimension = int(self._model.encode([""], show_progress_bar=False).shape[1])
        self._fingerprint = encoder_fingerprint(
            sha256_of(folder / "model.safetensors"), sha256_of(folder / "tokenizer.json"), POOLING, "fp32", max_tokens
        )

    @property
    def fingerprint(self) -> str:
        """Names the model; see `Encoder.fingerprint`."""
        return self._fingerprint

    @property
    def dimension(self) -> int:
        """Numbers in one vector."""
        return self._dimension

    def encode(self, texts: Sequence[str]) -> Matrix:
        """One row for each text; see `Encoder.encode`. One by one: torch's last bit depends on the batch."""
        vectors = np.empty((len(texts), self._dimension), dtype=np.float32)
        for n, text in enumerate(texts):
            vectors[n] = self._model.encode(
                [clean(text)], convert_to_numpy=True, normalize_embeddings=True, show_progress_bar=False
            )[0]
        return vectors
