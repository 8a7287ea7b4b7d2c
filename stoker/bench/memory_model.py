"""Weights and KV of one replica played through a buddy pool, with the one memory view of D15 and without it.

Both play the same seeded hour: rounds of a prefill, whose prompts are admitted, and of a decode, in which sequences
grow and end, while weight chunks of adapters come and go. Without the view both sides claim what they want when they
want it from the same pool: weights do not wait, and a sequence is one block that is moved into one twice as large when
it is full.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from analytics.buddy import BuddyPool
from analytics.memory_view import MAX_BATCH, MAX_SEQ_TOKENS, Failed, MemoryView, Phase

MIB = 1 << 20
TOTAL_BYTES = 1_024 * MIB
KV_BYTES_PER_TOKEN = 16 * 1024
BASE_CHUNKS, BASE_CHUNK_BYTES = 24, 12 * MIB
ADAPTERS = 24
ROUNDS, STEPS = 300, 24
"""Rounds, and decode steps of eight tokens in each."""
STEP_TOKENS = 8


class Memory(Protocol):
    """What is played on; `MemoryView` is one."""

    failed: Failed

    @property
    def pool(self) -> BuddyPool:
        """The memory."""
        ...

    def enter(self, phase: Phase) -> None:
        """Another phase begins."""

    def load(self, name: str, size_bytes: int) -> bool:
        """Wants a weight chunk."""

    def drop(self, name: str) -> None:
        """Gives one back."""

    def open(self, sequence: str, tokens: int) -> object | None:
        """Wants room for a prompt; None where it has it."""

    def append(self, sequence: str, tokens: int = 1) -> object | None:
        """Generated tokens; None where there is room."""

    def close(self, sequence: str) -> None:
        """A sequence ends."""


@dataclass
class Apart:
    """Weights and KV that know nothing of each other."""

    pool: BuddyPool
    kv_bytes_per_token: int
    failed: Failed = field(default_factory=Failed)
    _weights: dict[str, int] = field(default_factory=dict)
    _slots: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def enter(self, phase: Phase) -> None:
        """Phases mean nothing here."""

    def load(self, name: str, size_bytes: int) -> bool:
        """Takes room at once."""
        if name in self._weights:
            return True
        offset = self.pool.allocate(size_bytes)
        if offset is None:
            self.failed.weights += 1
            return False
        self._weights[name] = offset
        return True

    def drop(self, name: str) -> None:
        """Gives a chunk back; nothing where it never came."""
        if name in self._weights:
            self.pool.give_back(self._weights.pop(name))

    def open(self, sequence: str, tokens: int) -> object | None:
        """One block for the whole prompt."""
        offset = self.pool.allocate(tokens * self.kv_bytes_per_token)
        if offset is None:
            self.failed.kv += 1
            return "no_room"
        self._slots[sequence] = (offset, tokens, _room(tokens))
        return None

    def append(self, sequence: str, tokens: int = 1) -> object | None:
        """Grows within its block, or moves into one twice as large."""
        offset, length, room = self._slots[sequence]
        if length + tokens > room:
            moved = self.pool.allocate(2 * room * self.kv_bytes_per_token)
            if moved is None:
                self.failed.growth += 1
                return "no_room"
            self.pool.give_back(offset)
            offset, room = moved, 2 * room
        self._slots[sequence] = (offset, length + tokens, room)
        return None

    def close(self, sequence: str) -> None:
        """Gives the block back."""
        self.pool.give_back(self._slots.pop(sequence)[0])


def _room(tokens: int) -> int:
    """Tokens that the block of a prompt holds: blocks are powers of two, of 128 tokens at least."""
    return 1 << max(7, (tokens - 1).bit_length())


def with_view() -> Memory:
    """The memory of D15."""
    return MemoryView(TOTAL_BYTES, KV_BYTES_PER_TOKEN)


def without_view() -> Memory:
    """Two that do not know of each other."""
    return Apart(BuddyPool(TOTAL_BYTES), KV_BYTES_PER_TOKEN)


def play(memory_of: Callable[[], Memory], seed: int) -> tuple[Failed, float]:
    """Plays the hour; what was refused, and the mean fragmentation of the free bytes over all rounds."""
    memory, source = memory_of(), random.Random(seed)
    memory.enter("decode")
    for number in range(BASE_CHUNKS):
        memory.load(f"layer{number}.attn.q_proj", BASE_CHUNK_BYTES)
    sizes = {f"adapter{number}": source.randrange(3, 40) * MIB for number in range(ADAPTERS)}
    wanted: list[str] = []
    left: dict[str, int] = {}
    fragmentation = 0.0
    for number in range(ROUNDS):
        arrivals = [
            (f"s{number}.{place}", _prompt(source), source.randrange(16, 1_024)) for place in range(source.randrange(7))
        ]
        swaps = [source.choice(sorted(sizes)) for _ in range(source.randrange(3))]
        memory.enter("prefill")
        for name in swaps:
            if name in wanted:
                wanted.remove(name)
                memory.drop(name)
            else:
                wanted.append(name)
                memory.load(name, sizes[name])
        for sequence, tokens, answer in arrivals:
            if len(left) < MAX_BATCH and memory.open(sequence, tokens) is None:
                left[sequence] = min(answer, MAX_SEQ_TOKENS - tokens)
        memory.enter("decode")
        for _ in range(STEPS):
            for sequence in sorted(left):
                left[sequence] -= STEP_TOKENS
                if left[sequence] < 0 or memory.append(sequence, STEP_TOKENS) is not None:
                    memory.close(sequence)
                    del left[sequence]
        fragmentation += memory.pool.fragmentation / ROUNDS
    return memory.failed, fragmentation


def _prompt(source: random.Random) -> int:
    return max(16, min(MAX_SEQ_TOKENS - 16, round(source.lognormvariate(6.3, 0.8))))
