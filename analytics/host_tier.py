"""A small cache over a host tier: what left waits below, and is moved back ahead of its request (D11).

One index (analytics.reuse_model) says what is worth holding. On a request the least worthy leave for the host tier. On
a tick a warm-up is planned for everything below that has become worth more than what it would displace, within the
budget: tokens moved never exceed tokens demanded so far, times a share. It lands a tick later; until then a request for
it is a miss, and the warm-up late.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import astuple, dataclass, field

import numpy as np

from analytics.cache_models import Prompt
from analytics.records import Record, pack, unpack
from analytics.reuse_model import Floats, Ints, ReuseConfig, ReuseModel
from analytics.tier_moves import moves
from analytics.tier_runs import TierRuns

DEPTH_WORTH = 1e-6
"""Part of its worth that a run loses with every step of depth: of equal ones the deeper leaves first."""


class HostTierRecord(Record, frozen=True, array_like=True):
    """Both tiers, what is under way, who leaves next, and what was learned."""

    runs: bytes
    under_way: tuple[int, ...]
    landing: tuple[int, ...]
    worst: tuple[int, ...]
    worst_worth: tuple[float, ...]
    fresh: tuple[tuple[float, int, int], ...]
    clock_ms: tuple[float | None, float, float, float]
    demanded_blocks: int
    counts: tuple[int, int, int, int]
    model: bytes


@dataclass(frozen=True)
class HostTierConfig:
    """Settings.

    Args:
        tick_ms: how often warm-ups are planned, and how long one takes to land.
        learn_ms: how often the index is renewed.
        margin: how much more a run must be worth than what it displaces.
        budget_share: blocks that may be moved for each block demanded, over the run.
        reuse: of the model.
    """

    tick_ms: float = 3_000.0
    learn_ms: float = 15_000.0
    margin: float = 1.25
    budget_share: float = 1.0
    reuse: ReuseConfig = field(default_factory=ReuseConfig)

    def build(self, capacity_blocks: int, host_blocks: int) -> HostTierCache:
        """A cache of so many blocks above a host tier of so many."""
        return HostTierCache(self, capacity_blocks, host_blocks)


@dataclass
class WarmupCounts:
    """What warm-ups did, in blocks.

    Attributes:
        moved: out of the host tier.
        useful: of these, found by a request before they left again.
        late: asked for while they were under way.
        displaced_asked: blocks that a warm-up displaced and that were asked for before anything else brought them back.
    """

    moved: int = 0
    useful: int = 0
    late: int = 0
    displaced_asked: int = 0


class HostTierCache:
    """The two tiers.

    Args:
        config: settings.
        capacity_blocks: of the small cache.
        host_blocks: of the tier below.
    """

    def __init__(self, config: HostTierConfig, capacity_blocks: int, host_blocks: int) -> None:
        self._config = config
        self._capacity = capacity_blocks
        self.counts = WarmupCounts()
        self.demanded_blocks = 0
        self._model = ReuseModel(config.reuse)
        self._runs = TierRuns(capacity_blocks + host_blocks)
        self._under_way: list[int] = []
        self._landing: set[int] = set()
        self._worst: list[int] = []
        self._worst_worth: list[float] = []
        self._fresh: list[tuple[float, int, int]] = []
        self._ordered_at_ms = -np.inf
        self._now_ms: float | None = None
        self._tick_at_ms = 0.0
        self._learn_at_ms = 0.0

    @property
    def held_blocks(self) -> int:
        """Blocks in the small cache, never more than its capacity."""
        return self._runs.held_blocks

    @property
    def known_blocks(self) -> int:
        """Blocks in both tiers."""
        return self._runs.known_blocks

    def held(self, key: Hashable) -> int:
        """Blocks of a run that are in the small cache."""
        row = self._runs.find(key)
        return int(self._runs.held[row]) if row is not None else 0

    def request(self, prompt: Prompt, at_ms: float) -> int:
        """What a request finds; afterwards its runs are there, as far as they are worth staying."""
        self._advance(at_ms)
        found, runs = self._look(prompt), self._runs
        for depth, (key, blocks) in enumerate(prompt):
            self.demanded_blocks += blocks
            row = runs.use(key)
            if runs.uses[row]:
                self._model.used(int(runs.uses[row]), at_ms - float(runs.last_ms[row]), blocks)
            runs.hold(row, blocks)
            runs.uses[row] += 1
            runs.last_ms[row] = max(runs.last_ms[row], at_ms)
            runs.depth[row] = depth
            worth = self._model.fresh(int(runs.uses[row])) * (1 - DEPTH_WORTH * depth)
            heapq.heappush(self._fresh, (worth, row, int(runs.uses[row])))
            runs.warmed[row], runs.displaced[row] = 0, False
        self._landing.difference_update(runs.forget())
        self._evict(by_warm_up=False)
        return found

    def snapshot(self) -> bytes:
        """Versioned bytes of both tiers and all that was learned; keys of runs are strings or integers then."""
        return pack(
            HostTierRecord(
                1,
                runs=self._runs.snapshot(),
                under_way=tuple(self._under_way),
                landing=tuple(sorted(self._landing)),
                worst=tuple(self._worst),
                worst_worth=tuple(self._worst_worth),
                fresh=tuple(self._fresh),
                clock_ms=(self._now_ms, self._tick_at_ms, self._learn_at_ms, self._ordered_at_ms),
                demanded_blocks=self.demanded_blocks,
                counts=astuple(self.counts),
                model=self._model.snapshot(),
            )
        )

    def restore(self, blob: bytes) -> None:
        """Takes what `snapshot` of a cache with the same settings gave."""
        record = unpack(blob, HostTierRecord)
        self._runs.restore(record.runs)
        self._under_way, self._landing = list(record.under_way), set(record.landing)
        self._worst, self._worst_worth, self._fresh = list(record.worst), list(record.worst_worth), list(record.fresh)
        self._now_ms, self._tick_at_ms, self._learn_at_ms, self._ordered_at_ms = record.clock_ms
        self.demanded_blocks, self.counts = record.demanded_blocks, WarmupCounts(*record.counts)
        self._model.restore(record.model)

    def _look(self, prompt: Prompt) -> int:
        """What is found, and what that says of warm-ups."""
        runs = self._runs
        found, whole = 0, True
        for key, blocks in prompt:
            row = runs.find(key)
            held = int(runs.held[row]) if row is not None else 0
            if row is not None and whole:
                found += min(held, blocks)
                self.counts.useful += int(runs.warmed[row])
            if row is not None and held < blocks:
                if row in self._landing:
                    self.counts.late += blocks - held
                elif runs.displaced[row]:
                    self.counts.displaced_asked += blocks - held
            whole = whole and held >= blocks
        return found

    def _advance(self, at_ms: float) -> None:
        if self._now_ms is None:
            self._now_ms = at_ms
            self._tick_at_ms = at_ms + self._config.tick_ms
        while self._tick_at_ms <= at_ms:
            self._tick(self._tick_at_ms)
            self._tick_at_ms += self._config.tick_ms

    def _tick(self, at_ms: float) -> None:
        assert self._now_ms is not None
        runs = self._runs
        rows = np.flatnonzero(runs.blocks)
        ages_ms = at_ms - runs.last_ms[rows]
        passed_ms = at_ms - self._now_ms
        if passed_ms > 0:
            self._model.waited(runs.uses[rows], np.maximum(ages_ms - passed_ms / 2, 0), runs.blocks[rows], passed_ms)
        self._now_ms = at_ms
        if at_ms >= self._learn_at_ms:
            self._model.learn()
            self._learn_at_ms = at_ms + self._config.learn_ms
        held = runs.held[rows] > 0
        warms = self._config.budget_share > 0
        if not warms:
            rows, held = rows[held], held[held]
        worth = self._worth(rows, at_ms + self._config.tick_ms)
        self._order(rows[held], worth[held], at_ms)
        self._land(at_ms)
        self._evict(by_warm_up=True)
        if warms:
            room = self._capacity - runs.held_blocks
            budget = int(self._config.budget_share * self.demanded_blocks) - self.counts.moved
            self._under_way = moves(runs, rows, worth, room, budget, self._config.margin)
            self._landing = set(self._under_way)

    def _land(self, at_ms: float) -> None:
        """What was planned a tick ago arrives."""
        runs = self._runs
        for row in self._under_way:
            missing = int(runs.blocks[row] - runs.held[row])
            if row in self._landing and missing > 0:
                runs.held[row] += missing
                runs.held_blocks += missing
                self.counts.moved += missing
                runs.warmed[row] += missing
                runs.displaced[row] = False
                runs.landed_ms[row] = at_ms
        self._under_way = []
        self._landing = set()

    def _evict(self, by_warm_up: bool) -> None:
        """The worst leave: of what was ordered at the last tick, and of what was asked for since."""
        runs = self._runs
        surplus = runs.held_blocks - self._capacity
        while surplus > 0:
            row = self._next_worst()
            leaving = min(surplus, int(runs.held[row]))
            runs.held[row] -= leaving
            runs.held_blocks -= leaving
            surplus -= leaving
            runs.displaced[row] = by_warm_up
            runs.warmed[row] = max(0, runs.warmed[row] - leaving)

    def _next_worst(self) -> int:
        """The row to take from; it stays the next one until nothing of it is left."""
        runs = self._runs
        while self._worst:
            row = self._worst[-1]
            if runs.held[row] and max(runs.last_ms[row], runs.landed_ms[row]) < self._ordered_at_ms:
                break
            self._worst.pop()
            self._worst_worth.pop()
        while self._fresh:
            _, row, uses = self._fresh[0]
            if runs.held[row] and runs.uses[row] == uses:
                break
            heapq.heappop(self._fresh)
        if self._worst and (not self._fresh or self._worst_worth[-1] <= self._fresh[0][0]):
            return self._worst[-1]
        if self._fresh:
            return self._fresh[0][1]
        # Only what has just landed is held.
        return int(np.flatnonzero(runs.held)[-1])

    def _order(self, rows: Ints, worth: Floats, at_ms: float) -> None:
        """What a tick finds held, the worst last; it is newly ordered when it was touched."""
        order = np.argsort(-worth, kind="stable")
        self._worst, self._worst_worth = rows[order].tolist(), worth[order].tolist()
        self._fresh = []
        self._ordered_at_ms = at_ms

    def _worth(self, rows: Ints, at_ms: float) -> Floats:
        """The index; of equal ones the deeper is worth less, then the longer untouched."""
        runs = self._runs
        ages_ms = at_ms - runs.last_ms[rows]
        return self._model.index(runs.uses[rows], ages_ms) * (1 - DEPTH_WORTH * runs.depth[rows] - 1e-10 * ages_ms)
