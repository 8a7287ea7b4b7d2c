"""Backtest `breaker`: what a thousand warm-ups do to users' hits on one replica, by the breaker that holds them (D16).

One of the simulator's block pools, users who ask for long prefixes that they share, and warm-ups of which none is ever
asked for: whatever they take is taken from the users. `none` has no warm-ups, `off` warms without a breaker, `spec` and
`tuned` are the objects that the executor runs, fed as the executor feeds them. Usage is seen between requests, where
only running warm-ups hold blocks: idle cached blocks read as free. Goals: in the small pool, where one prefix is hot,
users lose at most 2 points of their hit rate, and where there is room for all, hardly a warm-up is lost. In the full
pool what users share just fits: there each warm-up costs, and harm shows only a minute later.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from analytics.breaker import Breaker, Reading
from analytics.breaker_rules import Load
from analytics.foreground import Counters
from analytics.policy_sections import BreakerPolicy
from stoker.bench.figures import Figure, Report, at_least, at_most
from stoker.simulator.blocks import BlockPool, Held

BLOCK_TOKENS = 16
PREFIX_BLOCKS = 24
OWN_BLOCKS = 2
"""A user's prompt: a shared prefix, and words of their own."""
ASKED_EVERY_MS = 2_000
WARMUPS = 1_000
WARMUP_BLOCKS = 6
WARMED_EVERY_MS = 250
WARMUP_LIFE_MS = 30_000
CONCURRENCY = 2
PREFILL_MS_PER_TOKEN = 0.5
LEAD_MS = 60_000
"""Users alone, before the first warm-up comes."""
LOOK_MS = 1_000
BOUNDS_MS = (1, 5, 10, 20, 40, 60, 80, 100, 250, 500, 750, 1_000, 2_500, 5_000, math.inf)
"""vLLM's buckets of the time to first token."""
SEEDS = (31, 32, 33)
LOST_POINTS = 2.0
LET_THROUGH = 0.95

Rule = Literal["none", "off", "spec", "tuned"]
RULES: tuple[Rule, ...] = ("none", "off", "spec", "tuned")


@dataclass(frozen=True)
class Case:
    """A replica and its users.

    Attributes:
        blocks: of the replica.
        prefixes: so many, by Zipf's law, each user asks for one of them.
    """

    blocks: int
    prefixes: int


CASES = {"small": Case(48, 1), "full": Case(400, 12), "roomy": Case(8_000, 12)}


@dataclass
class Played:
    """What came of a run, from the first warm-up on."""

    queried: int = 0
    found: int = 0
    warmed: int = 0
    lost: int = 0

    @property
    def hit_rate(self) -> float:
        """Of users' blocks."""
        return self.found / self.queried


@dataclass
class _Warming:
    held: Held
    begun_ms: float
    duration_ms: float


class _Replica:
    """A pool, what the engine counts, and the breaker that hears of it."""

    def __init__(self, blocks: int, rule: Rule) -> None:
        self.pool = BlockPool(blocks, BLOCK_TOKENS)
        self.policy = BreakerPolicy(enabled=rule in ("spec", "tuned"), rule="spec" if rule == "spec" else "tuned")
        self.breaker = Breaker()
        self.running = 0
        self._counts = [0] * len(BOUNDS_MS)
        self._queried = self._found = self._stored = self._stored_before = 0

    def admit(self, at_ms: float, blocks: Sequence[bytes]) -> Held | None:
        """Takes the blocks for a prompt, and counts it."""
        tokens = len(blocks) * BLOCK_TOKENS + 1
        held = self.pool.admit(blocks, tokens, tokens)
        if held is not None:
            self._queried += tokens
            self._found += held.hit_blocks * BLOCK_TOKENS
            gone = [_name(block) for block in self.pool.take_evictions()]
            self.breaker.removed(round(at_ms), gone, self.policy)
        return held

    def finish(self, at_ms: float, held: Held, first_token_ms: float) -> None:
        """The prompt was computed: its blocks can be found, and nobody holds them."""
        created = self.pool.store(held, len(held.hashes) * BLOCK_TOKENS)
        self.pool.release(held)
        self._counts[bisect_left(BOUNDS_MS, first_token_ms)] += 1
        self._stored += len(created)
        self.breaker.stored(round(at_ms), [_name(block) for _, block in created], self.policy)

    def look(self, at_ms: float) -> None:
        """What the executor does every second."""
        allocations = (self._stored - self._stored_before) * 1000 / LOOK_MS
        self._stored_before = self._stored
        counts = tuple(float(count) for count in itertools.accumulate(self._counts))
        counters = Counters(BOUNDS_MS, counts, self._queried, self._found)
        load = Load(self.pool.usage, 0, allocations)
        self.breaker.look(round(at_ms), Reading("1", load, counters, self.pool.usable), None, self.policy)


def _name(block: bytes) -> int:
    return int.from_bytes(block, "big")


class _Play:
    """Events in the order of time: users who ask, warm-ups that come and end, looks."""

    def __init__(self, case: Case, rule: Rule, seed: int) -> None:
        self._source = random.Random(seed)
        self._replica = _Replica(case.blocks, rule)
        self._prefixes = [self._fresh(PREFIX_BLOCKS) for _ in range(case.prefixes)]
        self._weights = [1 / (rank + 1) for rank in range(case.prefixes)]
        self._line: deque[tuple[float, list[bytes]]] = deque()
        self._warming = rule != "none"
        self.played = Played()

    def _fresh(self, count: int) -> list[bytes]:
        return [self._source.randbytes(8) for _ in range(count)]

    def run(self) -> Played:
        """All of it."""
        end_ms = LEAD_MS + WARMUPS * WARMED_EVERY_MS
        order = itertools.count()
        events: list[tuple[float, int, str, _Warming | None]] = []

        def at(when_ms: float, what: str, warming: _Warming | None = None) -> None:
            heapq.heappush(events, (when_ms, next(order), what, warming))

        for number in range(WARMUPS):
            at(LEAD_MS + (number + self._source.random()) * WARMED_EVERY_MS, "warm")
        for second in range(int(end_ms / LOOK_MS)):
            at((second + 1) * LOOK_MS, "look")
        asked_ms = 0.0
        while (asked_ms := asked_ms + self._source.expovariate(1 / ASKED_EVERY_MS)) < end_ms:
            at(asked_ms, "ask")
        while events:
            now_ms, _, what, warming = heapq.heappop(events)
            if what == "ask":
                self._ask(now_ms)
            elif what == "warm":
                self._line.append((now_ms, self._fresh(WARMUP_BLOCKS)))
            elif what == "look":
                self._replica.look(now_ms)
            elif warming is not None:
                self._end(now_ms, warming)
            for begun in self._begin(now_ms):
                at(now_ms + begun.duration_ms, "end", begun)
        self.played.lost = WARMUPS - self.played.warmed
        return self.played

    def _ask(self, now_ms: float) -> None:
        [prefix] = self._source.choices(self._prefixes, self._weights)
        blocks = [*prefix, *self._fresh(OWN_BLOCKS)]
        held = self._replica.admit(now_ms, blocks)
        if now_ms >= LEAD_MS:
            self.played.queried += len(blocks)
            self.played.found += 0 if held is None else held.hit_blocks
        if held is not None:
            missed = len(blocks) - held.hit_blocks
            self._replica.finish(now_ms, held, (missed * BLOCK_TOKENS + 1) * PREFILL_MS_PER_TOKEN)

    def _begin(self, now_ms: float) -> list[_Warming]:
        replica, begun = self._replica, []
        while self._line and self._warming:
            came_ms, blocks = self._line[0]
            if now_ms - came_ms > WARMUP_LIFE_MS:
                self._line.popleft()
                continue
            brake = replica.breaker.brake
            if brake.says("burstable") != "go" or replica.running >= brake.places(CONCURRENCY):
                break
            held = replica.admit(now_ms, blocks)
            if held is None:
                break
            self._line.popleft()
            replica.running += 1
            replica.breaker.began(round(now_ms))
            begun.append(_Warming(held, now_ms, len(blocks) * BLOCK_TOKENS * PREFILL_MS_PER_TOKEN))
        return begun

    def _end(self, now_ms: float, warming: _Warming) -> None:
        replica, tokens = self._replica, len(warming.held.hashes) * BLOCK_TOKENS
        replica.finish(now_ms, warming.held, warming.duration_ms)
        replica.running -= 1
        self.played.warmed += 1
        key = warming.held.hashes[-1]
        at_ms = round(now_ms)
        replica.breaker.warmed(at_ms, key, tokens, 0, warming.duration_ms, BLOCK_TOKENS, replica.policy)
        replica.breaker.ended(at_ms)


def played(case: Case, rule: Rule, seed: int) -> Played:
    """A thousand warm-ups over the users of a case; the same users and warm-ups for every rule."""
    return _Play(case, rule, seed).run()


def run() -> Report:
    """Figures hit_rate.RULE.CASE, lost_points.{off,spec,tuned}.CASE and let_through.{spec,tuned}.CASE, means over
    seeds; lost_points_worst of the seed that lost most."""
    report = Report("breaker")
    for name, case in CASES.items():
        runs = {rule: [played(case, rule, seed) for seed in SEEDS] for rule in RULES}
        rates = {rule: [each.hit_rate for each in runs[rule]] for rule in RULES}
        usual = fmean(rates["none"])
        for rule in RULES:
            report.add(Figure(f"hit_rate.{rule}.{name}", fmean(rates[rule]), baseline=usual))
        for rule in RULES[1:]:
            lost = [100 * (before - now) for before, now in zip(rates["none"], rates[rule], strict=True)]
            goal = at_most(LOST_POINTS) if rule == "tuned" and name != "full" else None
            report.add(Figure(f"lost_points.{rule}.{name}", fmean(lost), "points", goal=goal))
            report.add(Figure(f"lost_points_worst.{rule}.{name}", max(lost), "points", goal=goal))
        for rule in RULES[2:]:
            share = fmean(each.warmed / WARMUPS for each in runs[rule])
            goal = at_least(LET_THROUGH) if (rule, name) == ("tuned", "roomy") else None
            report.add(Figure(f"let_through.{rule}.{name}", share, baseline=1.0, goal=goal))
    return report
