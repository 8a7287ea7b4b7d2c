"""What operators keep in Flink: the stores of `analytics` over keyed state, and the marker that guards a restore.

Keyed state shows the current key only, so one store object serves every key of its operator and must be used while that
key is current. Values are bytes of our own encoding, declared as PICKLED_BYTE_ARRAY because thread mode cannot hold
PRIMITIVE_ARRAY in keyed state; every value is turned into plain `bytes` first, since a foreign object in state would
crash only after a real restart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from analytics.bundles import pack, unpack
from schemas.errors import BrokenConfiguration

STATE_VERSION = 1
"""Of the layout of all keyed state. A change needs a migration, or a fresh start from the topics."""


@dataclass(frozen=True)
class Marker:
    """What must not change between a savepoint and its restore; written once under every key.

    Attributes:
        shards: number of demand shards: another number sends a query to another shard, away from its history.
        mode: of Python execution; process mode lays state out differently and would lose it silently.
        version: of the layout.
    """

    shards: int
    mode: str = "thread"
    version: int = STATE_VERSION

    @property
    def blob(self) -> bytes:
        """As it lies in state."""
        return f"stoker/{self.version} mode={self.mode} shards={self.shards}".encode()


_SEVERAL = b"\xff"
"""First byte of a value of several entries. An entry of its own, as before bundles, begins with its fate."""


class OneValue(Protocol):
    """The part of Flink's ValueState that is used here."""

    def value(self) -> Any: ...
    def update(self, value: bytes) -> None: ...


def check_marker(state: OneValue, marker: Marker) -> bool:
    """Compares the current key's marker with the job's, or writes it for a new key. Called on a key's first touch.

    Returns:
        whether the key is new: then there is nothing of it in any state.

    Raises:
        BrokenConfiguration: the state was written by another layout, mode or number of shards.
    """
    held = state.value()
    if held is None:
        state.update(marker.blob)
    elif bytes(held) != marker.blob:
        raise BrokenConfiguration(
            f"the restored state says '{bytes(held).decode()}', this job is '{marker.blob.decode()}': start it with "
            "the version and warmup.shards that the savepoint was taken with, or without --from-savepoint"
        )
    return held is None


class KeyedLogStore:
    """A `LogStore` over one ListState per slot and a MapState.

    Entries wait for `flush`, which writes those of a slot as one value: call it before the current key changes.

    Args:
        logs: one ListState of bytes a slot.
        blobs: MapState from long to bytes.
    """

    def __init__(self, logs: list[Any], blobs: Any) -> None:
        self._logs = logs
        self._blobs = blobs
        self._waiting: dict[int, list[bytes]] = {}

    def append(self, slot: int, entry: bytes) -> None:
        """Adds an entry at the end of a slot's log."""
        self._waiting.setdefault(slot, []).append(entry)

    def flush(self) -> None:
        """Writes what was appended since the last call."""
        for slot, entries in self._waiting.items():
            self._logs[slot].add(_SEVERAL + pack(entries))
        self._waiting.clear()

    def read(self, slot: int) -> Iterable[bytes]:
        """A slot's entries in order."""
        entries: list[bytes] = []
        for value in map(bytes, self._logs[slot].get() or ()):
            entries += unpack(value, 1) if value[:1] == _SEVERAL else [value]
        return entries + self._waiting.get(slot, [])

    def clear(self, slot: int) -> None:
        """Empties a slot."""
        self._waiting.pop(slot, None)
        self._logs[slot].clear()

    def put(self, key: int, blob: bytes) -> None:
        """Sets one blob."""
        self._blobs.put(key, bytes(blob))

    def remove(self, key: int) -> None:
        """Removes one blob."""
        self._blobs.remove(key)

    def items(self) -> Iterable[tuple[int, bytes]]:
        """All blobs of the current key."""
        return [(int(key), bytes(blob)) for key, blob in self._blobs.items() or ()]


class KeyedMapStore:
    """A `MapStore` over a MapState from string to bytes."""

    def __init__(self, records: Any) -> None:
        self._records = records

    def put(self, key: str, blob: bytes) -> None:
        """Sets one record."""
        self._records.put(key, bytes(blob))

    def remove(self, key: str) -> None:
        """Removes one record."""
        self._records.remove(key)

    def items(self) -> Iterable[tuple[str, bytes]]:
        """All records of the current key."""
        return [(str(key), bytes(blob)) for key, blob in self._records.items() or ()]


class NewKeyStore(KeyedMapStore):
    """A `KeyedMapStore` for a key that was new when it was asked: its records need not be looked for."""

    def items(self) -> Iterable[tuple[str, bytes]]:
        """Nothing."""
        return ()


def open_log_store(context: Any, slots: int) -> KeyedLogStore:
    """The log store of a keyed operator; called in its `open`.

    Args:
        context: Flink's RuntimeContext.
        slots: number of logs; part of the state's layout.
    """
    from pyflink.common import Types
    from pyflink.datastream.state import ListStateDescriptor, MapStateDescriptor

    value = Types.PICKLED_BYTE_ARRAY()
    logs = [context.get_list_state(ListStateDescriptor(f"log-{slot}", value)) for slot in range(slots)]
    return KeyedLogStore(logs, context.get_map_state(MapStateDescriptor("blobs", Types.LONG(), value)))


def open_map_stores(context: Any) -> tuple[KeyedMapStore, NewKeyStore]:
    """The map store of a keyed operator, and the same for keys that are new; called in its `open`."""
    from pyflink.common import Types
    from pyflink.datastream.state import MapStateDescriptor

    records = context.get_map_state(MapStateDescriptor("records", Types.STRING(), Types.PICKLED_BYTE_ARRAY()))
    return KeyedMapStore(records), NewKeyStore(records)


def open_marker(context: Any) -> Any:
    """The ValueState that `check_marker` wants; called in `open`."""
    from pyflink.common import Types
    from pyflink.datastream.state import ValueStateDescriptor

    return context.get_state(ValueStateDescriptor("marker", Types.PICKLED_BYTE_ARRAY()))
