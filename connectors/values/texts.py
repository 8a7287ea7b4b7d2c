"""What a source gave, as bytes of a cache entry."""

from __future__ import annotations

import json
from typing import Any

from connectors.redis.compression import MAX_BLOB_BYTES
from connectors.values.base import KeyFault, Loaded


def stored_form(value: Any) -> bytes | KeyFault:
    """The bytes to be stored, or why there are none. Text as UTF-8, bytes as they are, all else as compact JSON."""
    if value is None:
        return "not_found"
    try:
        if isinstance(value, bytes | bytearray | memoryview):
            data = bytes(value)
        elif isinstance(value, str):
            data = value.encode()
        else:
            data = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError):
        return "unusable"
    return data if len(data) <= MAX_BLOB_BYTES else "too_large"


def sorted_out(found: dict[str, bytes | KeyFault]) -> Loaded:
    """Values and faults apart."""
    return Loaded(
        {key: got for key, got in found.items() if isinstance(got, bytes)},
        {key: got for key, got in found.items() if not isinstance(got, bytes)},
    )
