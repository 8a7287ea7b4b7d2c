"""What goes wrong on a real topic, in small doses: repeated, broken, late records and requests that are no demand.

The accounting of the job must find each of them again; the demo's summary shows that it balances.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import msgspec

from schemas import RequestEvent, encode
from stoker.replay.sink import EventSink


@dataclass(frozen=True)
class Doses:
    """Shares of all events.

    Attributes:
        repeated: sent twice.
        broken: a truncated copy is sent beside it.
        probes: a request of origin `probe` is told beside it.
        late: a request of `late_ms` ago is told beside it, with its old record time.
    """

    repeated: float = 0.005
    broken: float = 0.002
    probes: float = 0.005
    late: float = 0.002
    late_ms: int = 25_000


class Disturbed:
    """Stands between a gateway and its sink.

    Args:
        sink: where everything goes.
        doses: how much of what.
        seed: of the draws.
    """

    def __init__(self, sink: EventSink, doses: Doses, seed: int) -> None:
        self._sink = sink
        self._doses = doses
        self._source = random.Random(seed)
        self._extra = 0

    def __call__(self, event: RequestEvent) -> None:
        """Send an event, and now and then something beside it."""
        self._sink(event)
        doses = self._doses
        if self._source.random() < doses.repeated:
            self._sink(event)
        if self._source.random() < doses.broken:
            whole = encode(event)
            self._sink.raw(whole[: len(whole) // 2], event.event_id, event.event_time_ms)
        if self._source.random() < doses.probes:
            self._sink(self._other(event, event.occurred_at_ms, "probe"))
        if self._source.random() < doses.late:
            self._sink(self._other(event, event.occurred_at_ms - doses.late_ms, "user"))

    def _other(self, event: RequestEvent, at_ms: int, origin: str) -> RequestEvent:
        self._extra += 1
        name = f"{event.request_id}-{origin}-{self._extra}"
        return msgspec.structs.replace(
            event,
            event_id=name,
            request_id=name,
            phase="started",
            origin=origin,
            occurred_at_ms=at_ms,
            completed_at_ms=None,
            ttft_ms=None,
            latency_ms=None,
        )
