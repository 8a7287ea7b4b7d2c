"""Versioned bytes of a decision's state: array-like MessagePack whose first field says how to read the rest.

A field is only ever added at the end, with a default. A change that needs more raises the version, and the reader of
the new version says what it does with the old one. Bytes of a later version are refused, never guessed.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Struct

from analytics.stores import MapStore
from schemas.errors import BrokenConfiguration


class Record(Struct, frozen=True, array_like=True, gc=False):
    """A record of state; the first field of its encoding is the version.

    Records are data and never part of a cycle, so the collector passes by the many that a decision holds.
    """

    v: int


R = TypeVar("R", bound=Record)

_encoder = msgspec.msgpack.Encoder()


def pack(record: Record) -> bytes:
    """The bytes of a record."""
    return _encoder.encode(record)


def unpack(blob: bytes, kind: type[R], version: int = 1) -> R:
    """The record in some bytes.

    Raises:
        BrokenConfiguration: a later version wrote them.
    """
    record = msgspec.msgpack.decode(blob, type=kind)
    if record.v > version:
        raise BrokenConfiguration(
            f"state of {kind.__name__} has version {record.v}, this program reads up to {version}: "
            "start the job with the release that wrote its savepoint, or a newer one"
        )
    return record


class Section:
    """A part of a MapStore under its own prefix, so that small decisions share the store of a big one."""

    def __init__(self, store: MapStore | Section, prefix: str) -> None:
        self._store = store
        self.prefix = prefix

    def put(self, key: str, blob: bytes) -> None:
        """Sets one record."""
        self._store.put(self.prefix + key, blob)

    def remove(self, key: str) -> None:
        """Removes one record; harmless when it is not there."""
        self._store.remove(self.prefix + key)


class ErasableSection(Section):
    """A section that can be emptied, since it knows the names of its records."""

    def __init__(self, store: MapStore, prefix: str) -> None:
        super().__init__(store, prefix)
        self._names: set[str] = set()

    def put(self, key: str, blob: bytes) -> None:
        """Sets one record."""
        self._names.add(key)
        super().put(key, blob)

    def remove(self, key: str) -> None:
        """Removes one record; harmless when it is not there."""
        self._names.discard(key)
        super().remove(key)

    def restored(self, key: str) -> None:
        """Takes note of a record that was read back."""
        self._names.add(key)

    def clear(self) -> None:
        """Removes all records."""
        for name in sorted(self._names):
            super().remove(name)
        self._names.clear()


def path(*names: str) -> str:
    """A key out of names of any content, that no other names give."""
    return "".join([f"{len(name)}:{name}" for name in names])
