"""How a text lies in Redis: one zstd frame, with a limit that a hostile frame cannot talk past."""

from __future__ import annotations

import zstandard

from schemas.errors import DeadReason, PoisonMessage
from schemas.topics import MAX_RECORD_BYTES

MAX_BLOB_BYTES = MAX_RECORD_BYTES
"""Longest text of one blob: what fits into a record fits into a blob."""
LEVEL = 3


def packed(text: bytes, name: str) -> bytes:
    """The compressed text.

    Raises:
        PoisonMessage: longer than `MAX_BLOB_BYTES`.
    """
    if len(text) > MAX_BLOB_BYTES:
        raise PoisonMessage(DeadReason.TOO_LARGE, name, f"{len(text)} bytes, at most {MAX_BLOB_BYTES}")
    return zstandard.ZstdCompressor(level=LEVEL).compress(text)


def unpacked(frame: bytes, name: str) -> bytes:
    """The text again.

    Raises:
        PoisonMessage: not a frame of ours: damaged, foreign, without its size or too long.
    """
    try:
        size = zstandard.frame_content_size(frame)
        if not 0 <= size <= MAX_BLOB_BYTES:
            raise PoisonMessage(DeadReason.TOO_LARGE, name, f"a frame of {size} bytes, at most {MAX_BLOB_BYTES}")
        return zstandard.ZstdDecompressor().decompress(frame)
    except zstandard.ZstdError as fault:
        raise PoisonMessage(DeadReason.WRONG_TYPE, name, f"not a zstd frame ({fault})") from None
