"""What a KV cache of a given size would have found of a sequence of requests: LRU, Belady, and without bounds (D11).

A prompt is a list of *runs*: the full blocks that end within one segment, named by the segment's chained hash. Engines
cache full blocks and evict them one by one, but a request touches all blocks of a run together and a prefix loses its
tail first, so that "how many of a run's first blocks are held" says the same as a list of blocks. Only what follows the
beginning without a gap is found. Time is the order of requests; a request's own blocks are there afterwards.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

NEVER = 1 << 62
"""Index of a request that does not come."""


class Run(NamedTuple):
    """Full blocks of one segment.

    Attributes:
        key: equal only where everything up to the segment's end is equal.
        blocks: at least 1.
    """

    key: Hashable
    blocks: int


Prompt = Sequence[Run]


def cut(segments: Iterable[tuple[Hashable, int]], block_tokens: int) -> tuple[Run, ...]:
    """The runs of a prompt; what fills no last block is cached nowhere.

    Args:
        segments: key and tokens of each, oldest first.
        block_tokens: of the engine.

    >>> cut([("system", 20), ("short", 4), ("question", 30)], 16)
    (Run(key='system', blocks=1), Run(key='question', blocks=2))
    """
    runs, end, blocks = [], 0, 0
    for key, tokens in segments:
        end += tokens
        found = end // block_tokens - blocks
        if found:
            runs.append(Run(key, found))
            blocks += found
    return tuple(runs)


def size(prompt: Prompt) -> int:
    """Blocks of a prompt."""
    return sum([run.blocks for run in prompt])


class LruCache:
    """A pool of blocks that drops the longest untouched ones first, and of one request the tail first.

    Args:
        capacity_blocks: of the replica.
    """

    def __init__(self, capacity_blocks: int) -> None:
        self._free = capacity_blocks
        self._held: OrderedDict[Hashable, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def held(self, key: Hashable) -> int:
        """Blocks of a run that are there."""
        return self._held.get(key, 0)

    def found(self, prompt: Prompt) -> int:
        """Blocks that a request for this prompt would find; changes nothing."""
        found = 0
        for key, blocks in prompt:
            held = self._held.get(key, 0)
            found += min(held, blocks)
            if held < blocks:
                break
        return found

    def request(self, prompt: Prompt) -> int:
        """What a request finds; afterwards its blocks are the last to leave."""
        found, held, free = self.found(prompt), self._held, self._free
        for key, blocks in reversed(prompt):
            free -= blocks - held.get(key, 0)
            held[key] = blocks
            held.move_to_end(key)
        while free < 0 and held:
            key, blocks = next(iter(held.items()))
            if blocks > -free:
                held[key] = blocks + free
                free = 0
            else:
                del held[key]
                free += blocks
        self._free = free
        return found


class EndlessCache:
    """A cache that keeps everything: what it does not find was never asked for before."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, int] = {}

    def request(self, prompt: Prompt) -> int:
        """What a request finds."""
        found, whole = 0, True
        for key, blocks in prompt:
            held = self._seen.get(key, 0)
            if whole:
                found += min(held, blocks)
                whole = held >= blocks
            if held < blocks:
                self._seen[key] = blocks
        return found


def belady(prompts: Sequence[Prompt], capacity_blocks: int) -> list[int]:
    """What each request finds in a cache that knows the future: it drops what is asked for last, or never took it in.

    Per block with bypass, a yardstick and not a proven optimum of prefixes (algorithms.md §3).

    Args:
        prompts: of all requests, in their order.
    """
    next_use = _next_uses(prompts)
    held: dict[Hashable, int] = {}
    due: dict[Hashable, int] = {}
    furthest: list[tuple[int, int, int, Hashable]] = []
    free = capacity_blocks
    found: list[int] = []
    for index, prompt in enumerate(prompts):
        there, whole = 0, True
        for depth, (key, blocks) in enumerate(prompt):
            had = held.get(key, 0)
            if whole:
                there += min(had, blocks)
                whole = had >= blocks
            again = next_use[index][depth]
            if again == NEVER:
                free += had
                held.pop(key, None)
                due.pop(key, None)
                continue
            free -= blocks - had
            held[key], due[key] = blocks, again
            # The index tells equal ones apart, so that keys are never compared.
            heapq.heappush(furthest, (-again, -depth, index, key))
        found.append(there)
        while free < 0 and furthest:
            minus_again, _, _, key = furthest[0]
            if due.get(key) != -minus_again:
                heapq.heappop(furthest)
                continue
            blocks = held[key]
            if blocks > -free:
                held[key] = blocks + free
                free = 0
            else:
                heapq.heappop(furthest)
                del held[key], due[key]
                free += blocks
    return found


def _next_uses(prompts: Sequence[Prompt]) -> list[list[int]]:
    """For each run of each prompt the index of the next request that has it."""
    after: dict[Hashable, int] = {}
    uses: list[list[int]] = []
    for index in range(len(prompts) - 1, -1, -1):
        uses.append([after.get(key, NEVER) for key, _ in prompts[index]])
        for key, _ in prompts[index]:
            after[key] = index
    uses.reverse()
    return uses
