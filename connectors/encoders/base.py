"""The encoder port. Its docstring is the contract; tests/contracts/test_encoder.py holds every backend to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from schemas.canonical import h128

Matrix = NDArray[np.float32]


class Encoder(Protocol):
    """Turns texts into vectors whose scalar product is their cosine. One thread at a time; blocking.

    A vector is a function of its text alone, bit by bit on one machine: what else was in the call, its order and its
    size change nothing. Caches, keys and replays depend on this (install.md: dynamic int8 broke it down to 0.984).
    """

    @property
    def fingerprint(self) -> str:
        """32 hex digits that name weights, tokenizer, pooling, precision and token limit; equal on every machine.

        Two encoders with equal fingerprints agree to a cosine of at least 0.999 in fp32, 0.99 in int8: there, where a
        processor's last bit is another, an activation is rounded to its other neighbour, and so are others after it.
        """

    @property
    def dimension(self) -> int:
        """Numbers in one vector."""

    def encode(self, texts: Sequence[str]) -> Matrix:
        """One row of length one (to 1e-5) for each text, in order: float32, shape (len(texts), dimension).

        Any string is fine, the empty one too; a text of more tokens than the limit is cut at its end. No text at all
        gives shape (0, dimension).

        Raises:
            TypeError: a text is no string.
        """


def encoder_fingerprint(
    weights_sha256: str, tokenizer_sha256: str, pooling: str, precision: str, max_tokens: int
) -> str:
    """The fingerprint of `Encoder.fingerprint`, from the digests of the two files and the three choices."""
    return h128("encoder/1", weights_sha256, tokenizer_sha256, pooling, precision, str(max_tokens))
