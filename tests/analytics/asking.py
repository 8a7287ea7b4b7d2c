"""Requests for the focus rule, as the demand shards tell of them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import count, groupby
from typing import NamedTuple

from analytics.asked import Asked, AskedRows

_ROW = struct.Struct(">qqQ16s")


class Event(NamedTuple):
    """A request.

    Attributes:
        user: 0 for nobody.
        identity: tells it from others that are equal.
        leads: numbers of its leading segments; none where they are not told.
    """

    at_ms: int
    query: int
    user: int
    template: str = ""
    adapter: str = ""
    identity: int = 0
    leads: tuple[int, ...] = ()


def key(number: int) -> bytes:
    """16 bytes of a query."""
    return number.to_bytes(16, "big")


def numbered(events: Iterable[tuple[int, ...] | Event]) -> list[Event]:
    """Events with an identity of their own each."""
    numbers = count(1)
    return [Event(*event)._replace(identity=next(numbers)) for event in events]


def row(event: Event) -> bytes:
    """As it lies in `AskedRows`."""
    return _ROW.pack(event.at_ms, event.identity, event.user, key(event.query)) + b"".join(map(key, event.leads))


def told(events: Iterable[Event], pane_ms: int, scope: str = "acme", at_ms: int | None = None) -> Iterator[Asked]:
    """What a shard says of these events at a slide; by default that of each pane's end."""
    for pane, own in groupby(sorted(events, key=lambda event: event.at_ms // pane_ms), lambda e: e.at_ms // pane_ms):
        groups: dict[tuple[str, str, int], list[bytes]] = {}
        for event in own:
            groups.setdefault((event.template, event.adapter, len(event.leads)), []).append(row(event))
        rows = tuple(
            AskedRows("gpu", template, adapter, b"".join(sorted(held)), leads)
            for (template, adapter, leads), held in sorted(groups.items())
        )
        yield Asked(scope, pane, (pane + 1) * pane_ms if at_ms is None else at_ms, rows)
