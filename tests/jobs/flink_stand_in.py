"""Flink's contexts in memory: keyed state per key, broadcast state, timers, counters. For tests of operators alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from typing import Any

from pyflink.common import Row

from analytics.envelopes import key_of


class ListOf:
    """ListState of the current key."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._entries: dict[Any, list[bytes]] = defaultdict(list)

    def add(self, value: bytes) -> None:
        assert type(value) is bytes
        self._entries[self._backend.key].append(value)

    def get(self) -> list[bytes]:
        return list(self._entries[self._backend.key])

    def clear(self) -> None:
        self._entries.pop(self._backend.key, None)


class MapOf:
    """MapState of the current key."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._entries: dict[Any, dict[Any, bytes]] = defaultdict(dict)

    def put(self, key: Any, value: bytes) -> None:
        assert type(value) is bytes
        self._entries[self._backend.key][key] = value

    def remove(self, key: Any) -> None:
        self._entries[self._backend.key].pop(key, None)

    def items(self) -> list[tuple[Any, bytes]]:
        return list(self._entries[self._backend.key].items())


class ValueOf:
    """ValueState of the current key."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._values: dict[Any, bytes] = {}

    def value(self) -> bytes | None:
        return self._values.get(self._backend.key)

    def update(self, value: bytes) -> None:
        self._values[self._backend.key] = value

    def clear(self) -> None:
        self._values.pop(self._backend.key, None)

    def keys(self) -> list[Any]:
        return list(self._values)


class Counter:
    """A metric."""

    def __init__(self) -> None:
        self.count = 0

    def inc(self, n: int = 1) -> None:
        self.count += n


class Backend:
    """What survives an operator: state, by name, and the counters; also its RuntimeContext."""

    def __init__(self) -> None:
        self.key: Any = None
        self.states: dict[str, Any] = {}
        self.broadcast: dict[str, bytes] = {}
        self.counters: dict[str, Counter] = defaultdict(Counter)

    def _state(self, kind: type, descriptor: Any) -> Any:
        return self.states.setdefault(descriptor.name, kind(self))

    def get_list_state(self, descriptor: Any) -> Any:
        return self._state(ListOf, descriptor)

    def get_map_state(self, descriptor: Any) -> Any:
        return self._state(MapOf, descriptor)

    def get_state(self, descriptor: Any) -> Any:
        return self._state(ValueOf, descriptor)

    def get_metrics_group(self) -> Backend:
        return self

    def add_group(self, *names: str) -> Backend:
        del names
        return self

    def counter(self, name: str) -> Counter:
        return self.counters[name]


class Plain:
    """An operator of which tests see envelopes, not the rows with their addresses that Flink sends on by them."""

    def __init__(self, operator: Any) -> None:
        self._operator = operator

    def process_element(self, value: bytes, context: Context) -> list[Any]:
        return self._plain(self._operator.process_element(value, context))

    def on_timer(self, timestamp: int, context: Context) -> list[Any]:
        return self._plain(self._operator.on_timer(timestamp, context))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)

    def _plain(self, made: Iterable[Any]) -> list[Any]:
        return [
            (out[0], self._envelope(out[1])) if isinstance(out, tuple) else self._envelope(out) for out in made or ()
        ]

    def _envelope(self, out: Any) -> Any:
        """Rows of topics have keys of bytes; the encoder's and demand's buffers have numbers."""
        if not isinstance(out, Row) or isinstance(out[0], bytes):
            return out
        assert isinstance(out[0], int) or out[0] == key_of(out[1])
        return out[1]


class AtOnce(Executor):
    """In the place of a thread: what it is given is done before it says so."""

    def __init__(self, **names: Any) -> None:
        del names

    def submit(self, task: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(task(*args, **named))
        return done


class Broadcast:
    """Broadcast state."""

    def __init__(self, entries: dict[str, bytes]) -> None:
        self._entries = entries

    def items(self) -> list[tuple[str, bytes]]:
        return list(self._entries.items())

    def put(self, key: str, value: bytes) -> None:
        self._entries[key] = value


class Context:
    """The context of one call, and its timer service."""

    def __init__(self, backend: Backend, key: Any = None, watermark_ms: int = 0, wall_ms: int = 0) -> None:
        backend.key = key
        self._backend = backend
        self.watermark_ms, self.wall_ms = watermark_ms, wall_ms
        self.event_timers: list[int] = []
        self.processing_timers: list[int] = []

    def timestamp(self) -> int:
        return self.watermark_ms

    def get_current_key(self) -> Any:
        return self._backend.key

    def timer_service(self) -> Context:
        return self

    def current_watermark(self) -> int:
        return self.watermark_ms

    def current_processing_time(self) -> int:
        return self.wall_ms

    def register_event_time_timer(self, at_ms: int) -> None:
        self.event_timers.append(at_ms)

    def register_processing_time_timer(self, at_ms: int) -> None:
        self.processing_timers.append(at_ms)

    def get_broadcast_state(self, descriptor: Any) -> Broadcast:
        del descriptor
        return Broadcast(self._backend.broadcast)
