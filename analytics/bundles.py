"""Several records in one: what is paid for each hand-over in Flink is paid once for all of them.

Two kinds, both big endian: records of a topic, each behind its time (`>q`, ms) and its length (`>i`, bytes), which
`stoker.flink.BundleOperator` puts together in Java; and facts of one shard, each behind its length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

_RECORD = struct.Struct(">qi")
_LENGTH = struct.Struct(">I")


def pack_record(at_ms: int, value: bytes) -> bytes:
    """A record as it lies in a bundle."""
    return _RECORD.pack(at_ms, len(value)) + value


def records_of(bundle: bytes) -> Iterator[tuple[int, bytes]]:
    """Time in ms and value of each record of a bundle, in order."""
    at, end, head, read = 0, len(bundle), _RECORD.size, _RECORD.unpack_from
    while at < end:
        at_ms, length = read(bundle, at)
        at += head
        yield at_ms, bundle[at : at + length]
        at += length


def pack(parts: Sequence[bytes]) -> bytes:
    """Facts, or other byte strings, as one; `unpack` gives them back."""
    length = _LENGTH.pack
    return b"".join([each for part in parts for each in (length(len(part)), part)])


def unpack(bundle: bytes, at: int = 0) -> list[bytes]:
    """What `pack` was given.

    Args:
        at: where in `bundle` it begins.
    """
    parts: list[bytes] = []
    end, head, read = len(bundle), _LENGTH.size, _LENGTH.unpack_from
    while at < end:
        start = at + head
        at = start + read(bundle, at)[0]
        parts.append(bundle[start:at])
    return parts
