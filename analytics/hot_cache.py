"""A pool of blocks that lets go of what was asked for least, by decayed hotness with history (D11).

Each run has a level in the log domain (analytics.decay). Of two equally hot runs the deeper one leaves, and of a run
its tail, so that what is held stays a prefix. What left becomes a ghost: when it is asked for again its hotness goes
on where it was. Ghosts are bounded, the coldest are forgotten.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable

from analytics.cache_models import Prompt
from analytics.decay import Decay, join
from analytics.records import Record, pack, unpack
from analytics.reuse_gaps import ReuseGaps


class HeldRecord(Record, frozen=True, array_like=True):
    """One run: blocks held (0 for a ghost), level, last use and its number, depth in the last prompt."""

    key: str | int
    blocks: int
    level: float
    last_ms: float
    use: int
    depth: int


class HotRecord(Record, frozen=True, array_like=True):
    """A whole cache."""

    per_ms: float
    offset: float
    uses: int
    runs: tuple[HeldRecord, ...]


class _Run:
    __slots__ = ("blocks", "depth", "last_ms", "level", "use")

    def __init__(self, level: float) -> None:
        self.blocks = 0
        self.level = level
        self.last_ms = 0.0
        self.use = 0
        self.depth = 0


class HotCache:
    """Decayed hotness at one half-life, which may be changed at any time.

    Args:
        capacity_blocks: of the replica.
        half_life_ms: after which a use counts half.
        max_ghosts: evicted runs that are remembered.
        gaps: told the time between two uses of each run, where somebody wants to know.
    """

    def __init__(
        self, capacity_blocks: int, half_life_ms: float, max_ghosts: int, gaps: ReuseGaps | None = None
    ) -> None:
        self._capacity = capacity_blocks
        self._max_ghosts = max_ghosts
        self._gaps = gaps
        self._decay = Decay.half_life(half_life_ms)
        self._runs: dict[Hashable, _Run] = {}
        self._coldest: list[tuple[float, int, int, Hashable]] = []
        self._held_blocks = 0
        self._held_runs = 0
        self._uses = 0

    @property
    def half_life_ms(self) -> float:
        """In force."""
        return self._decay.half_life_ms

    @property
    def held_blocks(self) -> int:
        """Blocks in the pool, never more than its capacity."""
        return self._held_blocks

    @property
    def ghosts(self) -> int:
        """Evicted runs that are remembered."""
        return len(self._runs) - self._held_runs

    def held(self, key: Hashable) -> int:
        """Blocks of a run that are there."""
        run = self._runs.get(key)
        return run.blocks if run is not None else 0

    def found(self, prompt: Prompt) -> int:
        """Blocks that a request for this prompt would find; changes nothing."""
        found = 0
        for key, blocks in prompt:
            held = self.held(key)
            found += min(held, blocks)
            if held < blocks:
                break
        return found

    def request(self, prompt: Prompt, at_ms: float) -> int:
        """What a request finds; afterwards its runs are there, as far as they are hot enough to stay."""
        found = self.found(prompt)
        mark = self._decay.mark(1.0, at_ms)
        for depth, (key, blocks) in enumerate(prompt):
            run = self._runs.get(key)
            if run is None:
                run = self._runs[key] = _Run(mark)
            else:
                run.level = join(run.level, mark)
                if self._gaps is not None:
                    self._gaps.add(at_ms - run.last_ms, blocks)
            self._uses += 1
            self._held_runs += not run.blocks
            self._held_blocks += blocks - run.blocks
            run.blocks, run.last_ms, run.use, run.depth = blocks, max(run.last_ms, at_ms), self._uses, depth
            # The number of the use tells equal ones apart, so that keys are never compared.
            heapq.heappush(self._coldest, (run.level, -depth, self._uses, key))
        self._shrink()
        return found

    def retune(self, half_life_ms: float, at_ms: float) -> None:
        """Another half-life from now on: what each run's uses are worth now stays, only how it fades changes."""
        self._decay = self._decay.with_half_life(half_life_ms, at_ms)

    def snapshot(self) -> bytes:
        """Versioned bytes of the cache; keys are strings or integers then."""
        runs = tuple(
            HeldRecord(1, key, run.blocks, run.level, run.last_ms, run.use, run.depth)
            for key, run in self._runs.items()
            if isinstance(key, str | int)
        )
        return pack(HotRecord(1, self._decay.per_ms, self._decay.offset, self._uses, runs))

    def restore(self, blob: bytes) -> None:
        """Takes what `snapshot` gave. The histogram of gaps has its own."""
        record = unpack(blob, HotRecord)
        self._decay, self._uses = Decay(record.per_ms, record.offset), record.uses
        self._runs = {}
        for kept in record.runs:
            run = self._runs[kept.key] = _Run(kept.level)
            run.blocks, run.last_ms, run.use, run.depth = kept.blocks, kept.last_ms, kept.use, kept.depth
        self._held_blocks = sum([run.blocks for run in self._runs.values()])
        self._held_runs = sum([run.blocks > 0 for run in self._runs.values()])
        self._order()

    def _order(self) -> None:
        self._coldest = [(run.level, -run.depth, run.use, key) for key, run in self._runs.items() if run.blocks]
        heapq.heapify(self._coldest)

    def _shrink(self) -> None:
        surplus = self._held_blocks - self._capacity
        while surplus > 0:
            _, _, use, key = self._coldest[0]
            run = self._runs.get(key)
            if run is None or run.use != use or not run.blocks:
                heapq.heappop(self._coldest)
                continue
            leaving = min(surplus, run.blocks)
            run.blocks -= leaving
            surplus -= leaving
            self._held_blocks -= leaving
            if not run.blocks:
                heapq.heappop(self._coldest)
                self._held_runs -= 1
        if len(self._coldest) > 4 * self._held_runs + 1024:
            self._order()
        if self.ghosts > self._max_ghosts:
            # A tenth more than needed at once, so that this is rare.
            surplus = self.ghosts - self._max_ghosts * 9 // 10
            gone = ((run.level, -run.depth, run.use, key) for key, run in self._runs.items() if not run.blocks)
            for _, _, _, key in heapq.nsmallest(surplus, gone):
                del self._runs[key]
