"""Rules about what is asked: windows (D1) and focus (D2)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from analytics import focus as rules
from analytics.crowds import CrowdWatch
from analytics.entropy import EntropySums
from analytics.envelopes import KeyCount, Partial, body_of
from analytics.minutes import MinuteWindow
from analytics.policy import FocusPolicy, PolicyBook, PolicyDefaults
from analytics.records import Section
from analytics.stores import MemoryMapStore
from analytics.windows import PaneTimes, WindowConfig, WindowRing
from schemas import Focus, decode
from schemas.canonical import h64, query_sha256
from schemas.fields import Ms
from stoker.rules.registry import Input, rule

PANE_MS = 10_000
SCOPE = "default"
Count = Annotated[float, Meta(ge=0)]


class Arrival(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request."""

    at_ms: Ms
    query: str
    user: str = ""
    weight: Annotated[float, Meta(gt=0)] = 1.0


class WindowInput(Input, frozen=True, kw_only=True):
    """Requests in the order in which they came, and the event time to look at them."""

    arrivals: list[Arrival]
    now_ms: Ms
    lateness_ms: Annotated[int, Meta(ge=0)] = 30_000


@rule(
    "window",
    "D1",
    {
        "arrivals": [
            {"at_ms": 5_000, "query": "returns?", "user": "ann"},
            {"at_ms": 61_000, "query": " returns?", "user": "bob"},
            {"at_ms": 62_000, "query": "sizes?", "user": "bob"},
        ],
        "now_ms": 120_000,
    },
)
def window(asked: WindowInput) -> object:
    """Tumbling minutes and the sliding five minutes over requests; what comes too late is counted as late."""
    ring = WindowRing(WindowConfig(times=PaneTimes(lateness_ms=asked.lateness_ms)))
    for arrival in asked.arrivals:
        query = bytes.fromhex(query_sha256(arrival.query))
        ring.add(arrival.at_ms, SCOPE, query, h64(arrival.user) if arrival.user else 0, weight=arrival.weight)
        ring.advance(arrival.at_ms)
    ring.advance(asked.now_ms)
    return {"late": ring.late, "minutes": ring.minutes(SCOPE), "sliding": ring.sliding(SCOPE)}


class ShouldPreheat(Input, frozen=True, kw_only=True):
    """Entropies of consecutive minutes in bits, the oldest first, and each key's rate in the current one."""

    entropy_history: list[Count]
    recent_qps: dict[str, Count]
    max_bits: Count = rules.MAX_ENTROPY_BITS
    fall_bits: Count = rules.FALL_BITS
    keys: Annotated[int, Meta(ge=1)] = rules.FOCUS_KEYS


@rule(
    "should_preheat",
    "D2",
    {"entropy_history": [2.3, 2.0, 1.9], "recent_qps": {"returns": 5.0, "sizes": 1.0, "jobs": 0.1}, "keys": 2},
)
def should_preheat(asked: ShouldPreheat) -> object:
    """The hottest keys of the minute where entropy is low and falling, else none."""
    found = rules.should_preheat(asked.entropy_history, asked.recent_qps, asked.max_bits, asked.fall_bits, asked.keys)
    return {"preheat": bool(found), "keys": found}


class FocusInput(Input, frozen=True, kw_only=True):
    """How often each key was asked for in consecutive minutes, the oldest first, and the replicas that are ready."""

    minutes: Annotated[list[dict[str, Count]], Meta(min_length=1, max_length=5)]
    ready_replicas: Annotated[int, Meta(ge=0)] = 4
    reference_replicas: Annotated[int, Meta(ge=1)] = 4
    entropy_max_bits: Count = FocusPolicy().entropy_max_bits
    keys: Annotated[int, Meta(ge=1, le=1000)] = FocusPolicy().keys


@rule(
    "focus",
    "D2",
    {
        "minutes": [
            {"a": 10, "b": 10, "c": 10, "d": 10, "e": 10},
            {"a": 30, "b": 10, "c": 5, "d": 5, "e": 2},
            {"a": 60, "b": 4, "c": 2, "d": 1, "e": 1},
        ]
    },
)
def focus(asked: FocusInput) -> object:
    """Which of the reference rules see a crowd in the last of these minutes, on which keys, and by what figures."""
    minutes = MinuteWindow(PANE_MS, Section(MemoryMapStore(), "i"))
    for number, counts in enumerate(asked.minutes):
        minutes.add(_partial(number * minutes.minute_ms, counts))
    book = PolicyBook(
        PolicyDefaults(focus=FocusPolicy(rule="spec", entropy_max_bits=asked.entropy_max_bits, keys=asked.keys))
    )
    watch = CrowdWatch(minutes, Section(MemoryMapStore(), "f"))
    fired = watch.judge(len(asked.minutes) - 1, asked.ready_replicas, asked.reference_replicas, book)
    seen = [decode(body_of(envelope), Focus) for envelope in fired]
    entropies = [EntropySums.of(filter(None, counts.values())).entropy_bits for counts in asked.minutes]
    return {"entropy_bits": entropies, "fired": [msgspec.to_builtins(insight) for insight in seen]}


def _partial(start_ms: int, counts: dict[str, float]) -> Partial:
    """A minute whose requests all came in its first pane, told by one shard with all of its keys."""
    asked = {key: count for key, count in counts.items() if count > 0}
    sums = EntropySums.of(asked.values())
    top = tuple(KeyCount(key, count, 1) for key, count in sorted(asked.items()))  # type: ignore[arg-type]
    return Partial(
        SCOPE, "gpu", "query", 0, start_ms, start_ms, 1, sums.weight, sums.sum_clogc, sums.distinct, len(top), top
    )
