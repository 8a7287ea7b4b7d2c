"""The live objects of a keyed operator: caches of its state, one a key, made when the key is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from analytics.stores import MapStore
from jobs.state import Marker, check_marker, open_map_stores, open_marker

T = TypeVar("T")


class Live(dict[str, T]):
    """What is alive by key. `live[key]` rebuilds what is not from its state; ask only in the context of that key.

    `del live[key]` lets an object go whose state stays, `end` one that has left none.

    Args:
        context: of the operator that opens.
        shards: of the job, for the state's marker.
        make: builds the object of a key over its state.

    Attributes:
        marker_state: says for the current key that it has state.
    """

    def __init__(self, context: Any, shards: int, make: Callable[[str, MapStore], T]) -> None:
        super().__init__()
        self._marker = Marker(shards)
        self.marker_state = open_marker(context)
        self._store, self._new_store = open_map_stores(context)
        self._make = make

    def __missing__(self, key: str) -> T:
        new = check_marker(self.marker_state, self._marker)
        made = self[key] = self._make(key, self._new_store if new else self._store)
        return made

    def end(self, key: str) -> None:
        """Lets an object go that has left no state; nothing of the key remains."""
        del self[key]
        self.marker_state.clear()
