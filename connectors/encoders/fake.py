"""An encoder for tests: unit vectors drawn by a seed that is the hash of the text's first words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from connectors.encoders.base import Matrix, encoder_fingerprint
from connectors.encoders.text import clean
from schemas.canonical import h64


class FakeEncoder:
    """`Encoder` without a model: equal texts have equal vectors, different ones are nearly orthogonal.

    Args:
        dimension: numbers in one vector.
        max_tokens: words (blank-separated) that are looked at.
    """

    def __init__(self, dimension: int = 384, *, max_tokens: int = 256) -> None:
        self._dimension = dimension
        self._max_tokens = max_tokens
        self.texts_encoded = 0

    @property
    def fingerprint(self) -> str:
        """Names this fake and its two numbers."""
        return encoder_fingerprint("fake", "words", "none", str(self._dimension), self._max_tokens)

    @property
    def dimension(self) -> int:
        """Numbers in one vector."""
        return self._dimension

    def encode(self, texts: Sequence[str]) -> Matrix:
        """One row for each text; see `Encoder.encode`."""
        vectors = np.empty((len(texts), self._dimension), dtype=np.float32)
        for n, text in enumerate(texts):
            words = clean(text).split()[: self._max_tokens]
            drawn = np.random.default_rng(h64(*words)).standard_normal(self._dimension)
            vectors[n] = drawn / np.linalg.norm(drawn)
        self.texts_encoded += len(texts)
        return vectors
