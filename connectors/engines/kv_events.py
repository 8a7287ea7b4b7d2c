"""KV events of vLLM and SGLang over ZMQ: decode their wire forms, notice gaps, ask for a replay, say so when state is
lost.

The stream carries token ids, adapter names and salts in clear: keep it on a private network and log no payload.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from connectors.engines.base import EventSource
from connectors.engines.events import BlocksCleared, BlocksRemoved, BlocksStored, Gap, KvEvent

REPLAY_TIMEOUT_S = 5.0
IDLE_S = 1.0
HIGH_WATER_MARK = 100_000
_END_OF_REPLAY = (-1).to_bytes(8, "big", signed=True)
_STORED_FIELDS = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name")


def decode_batch(payload: bytes) -> list[KvEvent]:
    """One message's events in order. Map events (vLLM since PR #42892) and positional arrays are both read, of both
    engines; events of unknown kind, of another medium's schema or undecodable batches raise ValueError."""
    try:
        batch = msgspec.msgpack.decode(payload)
        _ts, raw_events = batch[0], batch[1]
        rank = (batch[2] if len(batch) > 2 else 0) or 0
        return [_event(raw, rank) for raw in raw_events]
    except (msgspec.DecodeError, TypeError, IndexError, KeyError) as fault:
        raise ValueError(f"not a KV event batch: {type(fault).__name__}") from fault


def _event(raw: Any, rank: int) -> KvEvent:
    kind = raw["type"] if isinstance(raw, Mapping) else raw[0]
    fields: Mapping[str, Any]
    if kind == "BlockStored":
        fields = raw if isinstance(raw, Mapping) else dict(zip((*_STORED_FIELDS, "extra_keys"), raw[1:], strict=False))
        return _stored(fields, rank)
    if kind == "BlockRemoved":
        fields = raw if isinstance(raw, Mapping) else dict(zip(("block_hashes", "medium"), raw[1:], strict=False))
        return BlocksRemoved(_hashes(fields["block_hashes"]), fields.get("medium") or "GPU", rank)
    if kind == "AllBlocksCleared":
        return BlocksCleared(rank)
    raise ValueError(f"unknown KV event kind {kind!r:.40}")


def _stored(fields: Mapping[str, Any], rank: int) -> BlocksStored:
    parent = fields.get("parent_block_hash")
    adapter, salt = fields.get("lora_name"), fields.get("cache_salt")  # SGLang's map form tells the salt outright
    if isinstance(adapter, Mapping):  # its array form ends with a map of its own, where vLLM has the adapter
        salt, adapter = adapter.get("cache_salt"), None
    token_ids = tuple(fields["token_ids"])
    if token_ids and not isinstance(token_ids[0], int):
        raise ValueError("blocks of token pairs, as SGLang has them with EAGLE, cannot be told from a prompt's tokens")
    return BlocksStored(
        hashes=_hashes(fields["block_hashes"]),
        parent=None if parent is None else _hashes([parent])[0],
        token_ids=token_ids,
        block_tokens=int(fields["block_size"]),
        adapter=adapter,
        salt=(salt or _salt(fields.get("extra_keys"), adapter)) if parent is None else None,
        medium=fields.get("medium") or "GPU",
        rank=rank,
    )


def _hashes(raw: Sequence[Any]) -> tuple[int, ...]:
    """Hashes are unsigned integers (vLLM), signed ones (SGLang), or bytes where vLLM does not shorten them."""
    return tuple(int.from_bytes(one, "big") if isinstance(one, bytes) else int(one) for one in raw)


def _salt(extra_keys: Sequence[Sequence[Any] | None] | None, adapter: str | None) -> str | None:
    """The root block's extra keys hold, in order, the adapter name, multimodal pairs, and the salt."""
    keys = [key for key in (extra_keys[0] or ()) if isinstance(key, str)] if extra_keys else []
    if adapter is not None and keys and keys[0] == adapter:
        keys = keys[1:]
    return keys[-1] if keys else None


class KvEventStream:
    """Events of one data-parallel rank, in order.

    It begins with what the engine's replay buffer still has: after `BlocksCleared` where that is everything since the
    engine started, after a `Gap` where the beginning is lost or there is no replay endpoint. Later losses are replayed;
    what cannot be replayed, and a new process at the other end, give another `Gap`.

    Args:
        source: endpoints and topic, with hosts that can be dialled.
    """

    def __init__(self, source: EventSource) -> None:
        self._source = source
        self._expected = 0
        self._complete = False  # nothing since the engine started was missed
        self._context = zmq.asyncio.Context()
        self._sub: Any = self._context.socket(zmq.SUB)
        self._sub.set_hwm(HIGH_WATER_MARK)
        self._sub.setsockopt(zmq.SUBSCRIBE, source.topic.encode())
        self._monitor: Any = self._sub.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._sub.connect(source.endpoint)

    async def events(self) -> AsyncIterator[KvEvent]:
        """Events until the task is cancelled. A batch that does not decode counts as lost and gives a Gap."""
        poller = zmq.asyncio.Poller()
        poller.register(self._sub, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        for event in await self._beginning():
            yield event
        while True:
            ready = dict(await poller.poll(IDLE_S * 1000))
            if self._monitor in ready:
                await self._monitor.recv_multipart()
                for event in await self._beginning():
                    yield event
            elif self._sub in ready:
                _topic, sequence_bytes, payload = await self._sub.recv_multipart()
                for event in await self._received(int.from_bytes(sequence_bytes, "big"), payload):
                    yield event
            else:
                # A message that was lost with none after it would stay unnoticed.
                for sequence, payload in await self._replay(self._expected) or ():
                    for event in await self._received(sequence, payload):
                        yield event

    async def _beginning(self) -> list[KvEvent]:
        """Start afresh from the replay buffer."""
        rank, expected = self._source.rank, self._expected
        self._expected, self._complete = 0, False
        history = await self._replay(0)
        if history is None:
            return [Gap(expected, 0, rank)]
        first = history[0][0] if history else 0
        self._complete = first == 0
        events: list[KvEvent] = [BlocksCleared(rank) if self._complete else Gap(0, first, rank)]
        for sequence, payload in history:
            events.extend(self._decoded(sequence, payload))
            self._expected = sequence + 1
        return events

    async def _received(self, sequence: int, payload: bytes) -> list[KvEvent]:
        events: list[KvEvent] = []
        rank, expected = self._source.rank, self._expected
        if sequence < expected:
            if sequence != 0:
                return events  # already seen through a replay
            events.append(Gap(expected, sequence, rank))  # it counts from 0 again: a new process
            expected, self._complete = 0, False
        missed = [(number, lost) for number, lost in await self._missing(expected, sequence) if number < sequence]
        if [number for number, _lost in missed] != list(range(expected, sequence)):
            events.append(Gap(expected, sequence, rank))
            self._complete = False
            missed = []
        elif expected == 0 and not self._complete:
            events.append(BlocksCleared(rank))  # nothing before this is unknown
            self._complete = True
        for number, lost in missed:
            events.extend(self._decoded(number, lost))
        self._expected = sequence + 1
        return events + self._decoded(sequence, payload)

    async def _missing(self, start: int, stop: int) -> list[tuple[int, bytes]]:
        return await self._replay(start) or [] if start < stop else []

    def _decoded(self, sequence: int, payload: bytes) -> list[KvEvent]:
        try:
            return decode_batch(payload)
        except ValueError:
            return [Gap(sequence, sequence, self._source.rank)]

    async def _replay(self, start: int) -> list[tuple[int, bytes]] | None:
        """Messages from `start` on that the engine still has, in order; None where it does not answer."""
        if self._source.replay_endpoint is None:
            return None
        socket: Any = self._context.socket(zmq.DEALER)
        found: list[tuple[int, bytes]] = []
        try:
            socket.connect(self._source.replay_endpoint)
            await socket.send_multipart((b"", start.to_bytes(8, "big")))
            while True:
                if not await socket.poll(REPLAY_TIMEOUT_S * 1000):
                    return None
                frames = await socket.recv_multipart()
                sequence_bytes, payload = frames[-2], frames[-1]
                if sequence_bytes == _END_OF_REPLAY:
                    return found
                found.append((int.from_bytes(sequence_bytes, "big"), payload))
        except zmq.ZMQError:
            return None
        finally:
            socket.close(linger=0)

    def close(self) -> None:
        """Unsubscribe. Cancel the task that reads `events` first."""
        self._sub.disable_monitor()
        self._monitor.close(linger=0)
        self._sub.close(linger=0)


async def merge(streams: Sequence[KvEventStream]) -> AsyncGenerator[KvEvent, None]:
    """Events of all ranks as they come; within a rank in order. Closes the streams at its end."""
    queue: asyncio.Queue[KvEvent] = asyncio.Queue(HIGH_WATER_MARK)

    async def pump(stream: KvEventStream) -> None:
        async for event in stream.events():
            await queue.put(event)

    tasks = [asyncio.ensure_future(pump(stream)) for stream in streams]
    try:
        while tasks:
            getter = asyncio.ensure_future(queue.get())
            done, _ = await asyncio.wait((getter, *tasks), return_when=asyncio.FIRST_COMPLETED)
            if getter in done:
                yield getter.result()
                continue
            getter.cancel()
            for task in done:
                task.result()  # a stream only ends by an error, which is the caller's to see
            return
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
        for stream in streams:
            stream.close()
