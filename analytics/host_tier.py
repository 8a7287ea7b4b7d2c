"""A small cache over a host tier: what left waits below, and is moved back ahead of its request (D11).

One index (analytics.reuse_model) says what is worth holding. On a request the least worthy leave for the host tier. On
a tick a warm-up is planned for everything below that has become worth more than what it would displace, within the
budget: tokens moved never exceed tokens demanded so far, times a share. It lands a tick later; until then a request for
it is a miss, and the warm-up late.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import astuple, dataclass, field

import numpy as np
import numpy.typing as npt

from analytics.cache_models import Prompt
from analytics.records import Record, pack, unpack
from analytics.reuse_model import Floats, Ints, ReuseConfig, ReuseModel

Flags = npt.NDArray[np.bool_]
DEPTH_WORTH = 1e-6
"""Part of its worth that a run loses with every step of depth: of equal ones the deeper leaves first."""

COLUMNS = ("_held", "_blocks", "_uses", "_depth", "_last_ms", "_landed_ms", "_warmed", "_displaced")
"""What is known of each run, by row."""


class HostTierRecord(Record, frozen=True, array_like=True):
    """Both tiers: keys and rows in the order of their last use, the columns, what is under way, who leaves next."""

    keys: tuple[str | int, ...]
    rows: tuple[int, ...]
    free: tuple[int, ...]
    columns: tuple[tuple[float, ...], ...]
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
        self._known_blocks_max = capacity_blocks + host_blocks
        self.counts = WarmupCounts()
        self.demanded_blocks = 0
        self._model = ReuseModel(config.reuse)
        self._rows: OrderedDict[Hashable, int] = OrderedDict()
        self._free: list[int] = []
        self._held: Ints = np.zeros(0, np.int64)
        self._blocks: Ints = np.zeros(0, np.int64)
        self._uses: Ints = np.zeros(0, np.int64)
        self._depth: Ints = np.zeros(0, np.int64)
        self._last_ms: Floats = np.zeros(0)
        self._landed_ms: Floats = np.zeros(0)
        self._warmed: Ints = np.zeros(0, np.int64)
        self._displaced: Flags = np.zeros(0, np.bool_)
        self._grow(1024)
        self._known_blocks = 0
        self._held_blocks = 0
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
        return self._held_blocks

    @property
    def known_blocks(self) -> int:
        """Blocks in both tiers."""
        return self._known_blocks

    def held(self, key: Hashable) -> int:
        """Blocks of a run that are in the small cache."""
        row = self._rows.get(key)
        return int(self._held[row]) if row is not None else 0

    def request(self, prompt: Prompt, at_ms: float) -> int:
        """What a request finds; afterwards its runs are there, as far as they are worth staying."""
        self._advance(at_ms)
        found = self._look(prompt)
        for depth, (key, blocks) in enumerate(prompt):
            self.demanded_blocks += blocks
            row = self._row(key)
            if self._uses[row]:
                self._model.used(int(self._uses[row]), at_ms - float(self._last_ms[row]), blocks)
            self._held_blocks += blocks - int(self._held[row])
            self._known_blocks += blocks - int(self._blocks[row])
            self._held[row] = self._blocks[row] = blocks
            self._uses[row] += 1
            self._last_ms[row] = max(self._last_ms[row], at_ms)
            self._depth[row] = depth
            worth = self._model.fresh(int(self._uses[row])) * (1 - DEPTH_WORTH * depth)
            heapq.heappush(self._fresh, (worth, row, int(self._uses[row])))
            self._warmed[row], self._displaced[row] = 0, False
        self._forget()
        self._evict(by_warm_up=False)
        return found

    def snapshot(self) -> bytes:
        """Versioned bytes of both tiers and all that was learned; keys of runs are strings or integers then."""
        return pack(
            HostTierRecord(
                1,
                keys=tuple(key for key in self._rows if isinstance(key, str | int)),
                rows=tuple(self._rows.values()),
                free=tuple(self._free),
                columns=tuple(tuple(getattr(self, name).astype(float).tolist()) for name in COLUMNS),
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
        self._rows = OrderedDict(zip(record.keys, record.rows, strict=True))
        self._free = list(record.free)
        for name, column in zip(COLUMNS, record.columns, strict=True):
            setattr(self, name, np.array(column, dtype=getattr(self, name).dtype))
        self._known_blocks, self._held_blocks = int(self._blocks.sum()), int(self._held.sum())
        self._under_way, self._landing = list(record.under_way), set(record.landing)
        self._worst, self._worst_worth, self._fresh = list(record.worst), list(record.worst_worth), list(record.fresh)
        self._now_ms, self._tick_at_ms, self._learn_at_ms, self._ordered_at_ms = record.clock_ms
        self.demanded_blocks, self.counts = record.demanded_blocks, WarmupCounts(*record.counts)
        self._model.restore(record.model)

    def _look(self, prompt: Prompt) -> int:
        """What is found, and what that says of warm-ups."""
        found, whole = 0, True
        for key, blocks in prompt:
            row = self._rows.get(key)
            held = int(self._held[row]) if row is not None else 0
            if row is not None and whole:
                found += min(held, blocks)
                self.counts.useful += int(self._warmed[row])
            if row is not None and held < blocks:
                if row in self._landing:
                    self.counts.late += blocks - held
                elif self._displaced[row]:
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
        rows = np.flatnonzero(self._blocks)
        ages_ms = at_ms - self._last_ms[rows]
        passed_ms = at_ms - self._now_ms
        if passed_ms > 0:
            self._model.waited(self._uses[rows], np.maximum(ages_ms - passed_ms / 2, 0), self._blocks[rows], passed_ms)
        self._now_ms = at_ms
        if at_ms >= self._learn_at_ms:
            self._model.learn()
            self._learn_at_ms = at_ms + self._config.learn_ms
        held = self._held[rows] > 0
        warms = self._config.budget_share > 0
        if not warms:
            rows, held = rows[held], held[held]
        worth = self._worth(rows, at_ms + self._config.tick_ms)
        self._order(rows[held], worth[held], at_ms)
        self._land(at_ms)
        self._evict(by_warm_up=True)
        if warms:
            self._plan(rows, worth)

    def _land(self, at_ms: float) -> None:
        """What was planned a tick ago arrives."""
        for row in self._under_way:
            missing = int(self._blocks[row] - self._held[row])
            if row in self._landing and missing > 0:
                self._held[row] += missing
                self._held_blocks += missing
                self.counts.moved += missing
                self._warmed[row] += missing
                self._displaced[row] = False
                self._landed_ms[row] = at_ms
        self._under_way = []
        self._landing = set()

    def _plan(self, rows: Ints, worth: Floats) -> None:
        """The best of what is below, as long as it is worth more than the worst of what is held, within the budget."""
        lacking = self._held[rows] < self._blocks[rows]
        below, wanted_worth = rows[lacking], worth[lacking]
        budget = int(self._config.budget_share * self.demanded_blocks) - self.counts.moved
        if not len(below) or budget <= 0:
            return
        above = self._held[rows] > 0
        held_worth = worth[above]
        order = np.argsort(held_worth, kind="stable")
        held_worth = held_worth[order] * self._config.margin
        room = self._capacity - self._held_blocks
        filled = np.cumsum(self._held[rows][above][order]) + room
        if room <= 0 and len(held_worth):
            better = wanted_worth > held_worth[0]
            below, wanted_worth = below[better], wanted_worth[better]
        best = np.argsort(-wanted_worth, kind="stable")
        below, wanted_worth = below[best], wanted_worth[best]
        needed = np.cumsum(self._blocks[below] - self._held[below])
        displaced = np.searchsorted(filled, needed)
        against = np.concatenate([held_worth, [np.inf]])[np.minimum(displaced, len(held_worth))]
        pays = (needed <= room) | (wanted_worth > against)
        count = int(np.argmin(pays)) if not pays.all() else len(pays)
        count = min(count, int(np.searchsorted(needed, budget, side="right")))
        self._under_way = below[:count].tolist()
        self._landing = set(self._under_way)

    def _evict(self, by_warm_up: bool) -> None:
        """The worst leave: of what was ordered at the last tick, and of what was asked for since."""
        surplus = self._held_blocks - self._capacity
        while surplus > 0:
            row = self._next_worst()
            leaving = min(surplus, int(self._held[row]))
            self._held[row] -= leaving
            self._held_blocks -= leaving
            surplus -= leaving
            self._displaced[row] = by_warm_up
            self._warmed[row] = max(0, self._warmed[row] - leaving)

    def _next_worst(self) -> int:
        """The row to take from; it stays the next one until nothing of it is left."""
        while self._worst:
            row = self._worst[-1]
            if self._held[row] and max(self._last_ms[row], self._landed_ms[row]) < self._ordered_at_ms:
                break
            self._worst.pop()
            self._worst_worth.pop()
        while self._fresh:
            _, row, uses = self._fresh[0]
            if self._held[row] and self._uses[row] == uses:
                break
            heapq.heappop(self._fresh)
        if self._worst and (not self._fresh or self._worst_worth[-1] <= self._fresh[0][0]):
            return self._worst[-1]
        if self._fresh:
            return self._fresh[0][1]
        # Only what has just landed is held.
        return int(np.flatnonzero(self._held)[-1])

    def _order(self, rows: Ints, worth: Floats, at_ms: float) -> None:
        """What a tick finds held, the worst last; it is newly ordered when it was touched."""
        order = np.argsort(-worth, kind="stable")
        self._worst, self._worst_worth = rows[order].tolist(), worth[order].tolist()
        self._fresh = []
        self._ordered_at_ms = at_ms

    def _worth(self, rows: Ints, at_ms: float) -> Floats:
        """The index; of equal ones the deeper is worth less, then the longer untouched."""
        ages_ms = at_ms - self._last_ms[rows]
        return self._model.index(self._uses[rows], ages_ms) * (1 - DEPTH_WORTH * self._depth[rows] - 1e-10 * ages_ms)

    def _row(self, key: Hashable) -> int:
        row = self._rows.get(key)
        if row is not None:
            self._rows.move_to_end(key)
            return row
        if not self._free:
            self._grow(2 * len(self._held))
        row = self._free.pop()
        self._rows[key] = row
        self._held[row] = self._blocks[row] = self._uses[row] = 0
        self._last_ms[row] = self._landed_ms[row] = -np.inf
        self._warmed[row], self._displaced[row] = 0, False
        return row

    def _forget(self) -> None:
        """The host tier is bounded too: the longest untouched is gone."""
        while self._known_blocks > self._known_blocks_max and len(self._rows) > 1:
            _, row = self._rows.popitem(last=False)
            self._known_blocks -= int(self._blocks[row])
            self._held_blocks -= int(self._held[row])
            self._held[row] = self._blocks[row] = 0
            self._landing.discard(row)
            self._free.append(row)

    def _grow(self, size: int) -> None:
        more = size - len(self._held)
        self._free += range(size - 1, len(self._held) - 1, -1)
        self._held, self._blocks = np.pad(self._held, (0, more)), np.pad(self._blocks, (0, more))
        self._uses, self._depth = np.pad(self._uses, (0, more)), np.pad(self._depth, (0, more))
        self._last_ms, self._landed_ms = np.pad(self._last_ms, (0, more)), np.pad(self._landed_ms, (0, more))
        self._warmed, self._displaced = np.pad(self._warmed, (0, more)), np.pad(self._displaced, (0, more))
