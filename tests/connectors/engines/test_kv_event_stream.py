"""The subscriber: gaps are filled by a replay, or told; nothing is seen twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from connectors.engines import BlocksCleared, BlocksRemoved, EventSource, Gap, KvEvent
from connectors.engines.kv_events import KvEventStream
from stoker.simulator.events import EventPublisher, removed

DEADLINE_S = 120.0


class Lossy:
    """A PUB socket that loses the messages with these sequence numbers."""

    def __init__(self, socket: Any, lost: set[int]) -> None:
        self._socket = socket
        self._lost = lost

    def send_multipart(self, frames: tuple[bytes, bytes, bytes], flags: int) -> None:
        if int.from_bytes(frames[1], "big") not in self._lost:
            self._socket.send_multipart(frames, flags)

    def close(self, linger: int) -> None:
        self._socket.close(linger=linger)


class Wire:
    """A publisher, a subscriber, and what the latter saw."""

    def __init__(self, lost: set[int], replay: bool = True, buffer: int = 100) -> None:
        self.publisher = EventPublisher("127.0.0.1", 0, 0, "kv", buffer)
        self.publisher._pub = Lossy(self.publisher._pub, lost)
        endpoint = self.publisher.replay_endpoint if replay else None
        self.stream = KvEventStream(EventSource(3, self.publisher.endpoint, endpoint, "kv"))
        self.seen: list[KvEvent] = []

    async def follow(self) -> None:
        async for event in self.stream.events():
            self.seen.append(event)

    async def until_seen(self, count: int) -> list[KvEvent]:
        async with asyncio.timeout(DEADLINE_S):
            while len(self.seen) < count:
                await asyncio.sleep(0.01)
        return self.seen


@pytest_asyncio.fixture
async def wires() -> AsyncIterator[contextlib.AsyncExitStack]:
    async with contextlib.AsyncExitStack() as stack:
        yield stack


async def started(stack: contextlib.AsyncExitStack, wire: Wire) -> Wire:
    tasks = [asyncio.create_task(wire.publisher.serve()), asyncio.create_task(wire.follow())]

    async def stop() -> None:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        wire.stream.close()
        wire.publisher.close()

    stack.push_async_callback(stop)
    await wire.until_seen(1)
    return wire


async def test_lost_messages_are_replayed_in_order(wires: contextlib.AsyncExitStack) -> None:
    wire = await started(wires, Wire(lost={1, 2}))
    for number in range(5):
        wire.publisher.publish([removed(number)])
    seen = await wire.until_seen(6)
    assert seen[0] == BlocksCleared(3)
    assert [event.hashes[0] for event in seen if isinstance(event, BlocksRemoved)] == [0, 1, 2, 3, 4]
    assert not [event for event in seen if isinstance(event, Gap)]


async def test_a_lost_last_message_is_found_in_the_next_silence(wires: contextlib.AsyncExitStack) -> None:
    wire = await started(wires, Wire(lost={0, 1}))
    for number in range(2):
        wire.publisher.publish([removed(number)])
    seen = await wire.until_seen(3)
    assert [event.hashes[0] for event in seen if isinstance(event, BlocksRemoved)] == [0, 1]


async def test_what_cannot_be_replayed_is_a_gap(wires: contextlib.AsyncExitStack) -> None:
    wire = await started(wires, Wire(lost={1, 2}, buffer=2))
    wire.publisher.publish([removed(0)])
    await wire.until_seen(2)
    for number in range(1, 5):
        wire.publisher.publish([removed(number)])
    seen = await wire.until_seen(5)
    assert isinstance(seen[2], Gap)
    assert [event.hashes[0] for event in seen[3:] if isinstance(event, BlocksRemoved)] == [3, 4]


async def test_without_a_replay_endpoint_it_begins_with_a_gap(wires: contextlib.AsyncExitStack) -> None:
    wire = await started(wires, Wire(lost=set(), replay=False))
    assert isinstance(wire.seen[0], Gap)
    assert wire.seen[0].rank == 3


async def test_a_batch_that_does_not_decode_is_a_gap(wires: contextlib.AsyncExitStack) -> None:
    wire = await started(wires, Wire(lost=set()))
    wire.publisher.publish([{"type": "SomethingNew"}])
    wire.publisher.publish([removed(1)])
    seen = await wire.until_seen(3)
    assert isinstance(seen[1], Gap)
    assert isinstance(seen[2], BlocksRemoved)
