"""One view of a replica's memory: weight chunks by name and KV slots by sequence, from one buddy pool (D15).

Two phases. While a batch is in *prefill*, KV gets contiguous room first and weights wait. In *decode* the weights that
waited are placed and all of them stay; sequences grow token by token into whatever ranges have come free, one shard
after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from analytics.buddy import BuddyPool

SHARD_TOKENS = 512
MAX_SHARDS = 4
MAX_SEQ_TOKENS = SHARD_TOKENS * MAX_SHARDS
MAX_BATCH = 32

Phase = Literal["prefill", "decode"]
Refusal = Literal["too_long", "batch_full", "no_room"]


@dataclass
class Shard:
    """A part of a sequence's KV.

    Attributes:
        base_offset: where it begins in the pool, in bytes; an int64 in the engine's table.
        valid_len: tokens in it, at most 512; an int32.
    """

    base_offset: int
    valid_len: int


@dataclass
class Failed:
    """Requests that were refused, by what they wanted. Weights that wait are not refused yet."""

    kv: int = 0
    growth: int = 0
    weights: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.kv + self.growth + self.weights


@dataclass
class MemoryView:
    """Weights and KV of one replica.

    Args:
        total_bytes: of the pool.
        kv_bytes_per_token: of all layers.

    Attributes:
        failed: what could not be had.
    """

    total_bytes: int
    kv_bytes_per_token: int
    max_seq_tokens: int = MAX_SEQ_TOKENS
    max_batch: int = MAX_BATCH
    phase: Phase = "prefill"
    failed: Failed = field(default_factory=Failed)

    def __post_init__(self) -> None:
        self.pool = BuddyPool(self.total_bytes)
        self._weights: dict[str, int] = {}
        self._waiting: dict[str, int] = {}
        self._slots: dict[str, list[Shard]] = {}

    @property
    def shard_bytes(self) -> int:
        """Of a full shard."""
        return SHARD_TOKENS * self.kv_bytes_per_token

    @property
    def weights(self) -> dict[str, int]:
        """Byte offsets of the weight chunks that are there, by name."""
        return dict(self._weights)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Weight chunks that wait for the end of a prefill, in the order in which they came."""
        return tuple(self._waiting)

    def shards(self, sequence: str) -> tuple[Shard, ...]:
        """The KV of a sequence; empty where it has none."""
        return tuple(self._slots.get(sequence, ()))

    def enter(self, phase: Phase) -> None:
        """Another phase begins; in decode the weights that waited are placed, the largest first."""
        self.phase = phase
        if phase == "decode":
            for name, size_bytes in sorted(self._waiting.items(), key=lambda chunk: (-chunk[1], chunk[0])):
                self._place(name, size_bytes)
            self._waiting.clear()

    def load(self, name: str, size_bytes: int) -> bool:
        """Wants a weight chunk, such as `layer0.attn.q_proj`; says whether it is there now. In prefill it waits."""
        if name in self._weights:
            return True
        if self.phase == "prefill":
            self._waiting[name] = size_bytes
            return False
        return self._place(name, size_bytes)

    def drop(self, name: str) -> None:
        """Gives a weight chunk back or stops its waiting; nothing happens where it never came."""
        self._waiting.pop(name, None)
        offset = self._weights.pop(name, None)
        if offset is not None:
            self.pool.give_back(offset)

    def open(self, sequence: str, tokens: int) -> Refusal | None:
        """Room for the KV of a prompt: ceil(tokens / 512) shards, side by side where the pool has such room.

        Returns:
            why it is refused; None where it is not.
        """
        if tokens > self.max_seq_tokens or tokens < 1:
            return "too_long"
        if len(self._slots) >= self.max_batch:
            return "batch_full"
        count = -(-tokens // SHARD_TOKENS)
        offsets = self.pool.allocate_run(count, self.shard_bytes) or self._scattered(count)
        if offsets is None:
            self.failed.kv += 1
            return "no_room"
        left = tokens
        self._slots[sequence] = []
        for offset in offsets:
            self._slots[sequence].append(Shard(offset, min(left, SHARD_TOKENS)))
            left -= SHARD_TOKENS
        return None

    def append(self, sequence: str, tokens: int = 1) -> Refusal | None:
        """Generated tokens: they fill the last shard and then take whatever range is free.

        Raises KeyError where there is no such sequence.

        Returns:
            why the rest of them is refused; None where all are taken.
        """
        slot = self._slots[sequence]
        for _ in range(tokens):
            if slot[-1].valid_len == SHARD_TOKENS:
                if len(slot) * SHARD_TOKENS >= self.max_seq_tokens:
                    return "too_long"
                offset = self.pool.allocate(self.shard_bytes)
                if offset is None:
                    self.failed.growth += 1
                    return "no_room"
                slot.append(Shard(offset, 0))
            slot[-1].valid_len += 1
        return None

    def close(self, sequence: str) -> None:
        """A sequence ends: its ranges are free for others. Raises KeyError where there is none."""
        for shard in self._slots.pop(sequence):
            self.pool.give_back(shard.base_offset)

    def _scattered(self, count: int) -> tuple[int, ...] | None:
        found: list[int] = []
        for _ in range(count):
            offset = self.pool.allocate(self.shard_bytes)
            if offset is None:
                for each in found:
                    self.pool.give_back(each)
                return None
            found.append(offset)
        return tuple(found)

    def _place(self, name: str, size_bytes: int) -> bool:
        offset = self.pool.allocate(size_bytes)
        if offset is None:
            self.failed.weights += 1
            return False
        self._weights[name] = offset
        return True
