"""Blobs as they lie in Redis: everything comes back, nothing hostile gets in."""

from __future__ import annotations

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from connectors.redis.compression import MAX_BLOB_BYTES, packed, unpacked
from schemas.errors import PoisonMessage


@given(st.binary(max_size=2_000))
def test_text_comes_back(text: bytes) -> None:
    assert unpacked(packed(text, "k"), "k") == text


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused_and_named(data: bytes) -> None:
    with pytest.raises(PoisonMessage, match="the-key"):
        unpacked(data, "the-key")


def test_frame_that_would_not_fit_is_refused_before_it_is_unpacked() -> None:
    bomb = zstandard.ZstdCompressor().compress(b"\0" * (MAX_BLOB_BYTES + 1))
    assert len(bomb) < 1_000
    with pytest.raises(PoisonMessage):
        unpacked(bomb, "k")


def test_frame_that_hides_its_size_is_refused() -> None:
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    frame = stream.compress(b"\0" * 10_000_000) + stream.flush()
    with pytest.raises(PoisonMessage):
        unpacked(frame, "k")


def test_cut_frame_is_refused() -> None:
    frame = packed(b"some text that is long enough to be cut", "k")
    with pytest.raises(PoisonMessage):
        unpacked(frame[:-4], "k")
