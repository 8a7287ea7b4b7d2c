"""KV events in vLLM's wire form: PUB with (topic, sequence, msgpack), ROUTER for a replay of what is still buffered."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import zmq
import zmq.asyncio

END_OF_REPLAY = (-1).to_bytes(8, "big", signed=True)
HIGH_WATER_MARK = 100_000


def stored(
    hashes: Sequence[int],
    parent: int | None,
    token_ids: Sequence[int],
    block_tokens: int,
    adapter: str | None,
    adapter_id: int | None,
    salt: str | None,
) -> dict[str, Any]:
    """A BlockStored event. The salt shows in the extra keys of a root block only, the adapter in those of all."""
    keys: list[list[str] | None] = [[adapter] if adapter else None for _ in hashes]
    if salt is not None and parent is None:
        keys[0] = [*(keys[0] or []), salt]
    return {
        "type": "BlockStored",
        "block_hashes": list(hashes),
        "parent_block_hash": parent,
        "token_ids": list(token_ids),
        "block_size": block_tokens,
        "lora_id": adapter_id,
        "medium": "GPU",
        "lora_name": adapter,
        "extra_keys": keys,
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }


def removed(block_hash: int) -> dict[str, Any]:
    """A BlockRemoved event; vLLM sends one a block."""
    return {"type": "BlockRemoved", "block_hashes": [block_hash], "medium": "GPU", "group_idx": 0}


def cleared() -> dict[str, Any]:
    """An AllBlocksCleared event."""
    return {"type": "AllBlocksCleared"}


def as_it_is(event: dict[str, Any]) -> dict[str, Any]:
    """An event as vLLM sends it."""
    return event


class EventPublisher:
    """Sends batches and answers replay requests. Bound in the constructor; `serve` runs until cancelled.

    Args:
        host: address to bind; a wildcard is spelled `*`, as vLLM does.
        port, replay_port: 0 takes a free port.
        topic: first frame of every message.
        buffer: batches kept for a replay.
        spell: an event as another engine would send it.
    """

    def __init__(
        self,
        host: str,
        port: int,
        replay_port: int,
        topic: str,
        buffer: int,
        spell: Callable[[dict[str, Any]], dict[str, Any]] = as_it_is,
    ) -> None:
        self.topic = topic
        self.buffer_steps = buffer
        self._host = "*" if host in ("0.0.0.0", "::", "") else host
        self._sequence = 0
        self._buffer: deque[tuple[int, bytes]] = deque(maxlen=buffer)
        self._spell = spell
        self._encoder = msgspec.msgpack.Encoder()
        self._context: zmq.asyncio.Context = zmq.asyncio.Context()
        self._pub: Any = zmq.Context(self._context).socket(zmq.PUB)
        self._pub.set_hwm(HIGH_WATER_MARK)
        self._replay: Any = self._context.socket(zmq.ROUTER)
        self.endpoint = self._bind(self._pub, port)
        self.replay_endpoint = self._bind(self._replay, replay_port)

    def publish(self, events: list[dict[str, Any]]) -> None:
        """Send one batch. Never blocks: a subscriber that does not keep up loses messages and sees the gap."""
        payload = self._encoder.encode([time.time(), list(map(self._spell, events)), 0])
        sequence = self._sequence
        self._sequence += 1
        self._buffer.append((sequence, payload))
        with contextlib.suppress(zmq.Again):
            self._pub.send_multipart((self.topic.encode(), sequence.to_bytes(8, "big"), payload), zmq.NOBLOCK)

    async def serve(self) -> None:
        """Answer replay requests: an empty frame and an 8-byte start; the end marker is -1."""
        while True:
            frames = await self._replay.recv_multipart()
            if len(frames) != 3:
                continue
            client, _empty, start_bytes = frames
            start = int.from_bytes(start_bytes, "big")
            for sequence, payload in list(self._buffer):
                if sequence >= start:
                    await self._replay.send_multipart(
                        (client, b"", self.topic.encode(), sequence.to_bytes(8, "big"), payload)
                    )
            await self._replay.send_multipart((client, b"", b"", END_OF_REPLAY, b""))
            await asyncio.sleep(0)

    def source(self) -> dict[str, Any]:
        """What `/kv_event_sources` tells of this rank."""
        return {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": self.endpoint,
            "replay_endpoint": self.replay_endpoint,
            "buffer_steps": self.buffer_steps,
            "hwm": HIGH_WATER_MARK,
            "max_queue_size": HIGH_WATER_MARK,
            "topic": self.topic,
        }

    def close(self) -> None:
        """Close both sockets at once; what is unsent is lost."""
        self._pub.close(linger=0)
        self._replay.close(linger=0)

    def _bind(self, socket: Any, port: int) -> str:
        if port:
            endpoint = f"tcp://{self._host}:{port}"
            socket.bind(endpoint)
            return endpoint
        return f"tcp://{self._host}:{socket.bind_to_random_port(f'tcp://{self._host}')}"
