"""Backtest `absent`: whether replicas lack a prefix as often as a planner says that they do (D11).

Four of the simulator's block pools, each request to one of them at random. A planner knows hotness as a prefix tree has
it, and every ten seconds learns of a few hot prefixes whether one replica had them, as warm-ups would tell. Judged is
the second half of the time, by the distance of the foretold from the found share over ten bins. `spec` takes what
policy says; `hidden` has replicas that tell nothing of themselves, and learns from what warm-ups found; `told` has
replicas that tell their capacity and counters, and so a shadow. Both are the objects that the job's planner runs.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from analytics.decay import EMPTY, Decay
from analytics.plan_config import PlanConfig
from analytics.policy_sections import PlanPolicy
from analytics.records import Section
from analytics.replicas import Fleet
from analytics.stay_time import StayTime
from analytics.stores import MemoryMapStore
from analytics.worth import p_absent_prior
from schemas import ReplicaSample
from stoker.backtests.absent_traffic import BLOCK_TOKENS, LOADS, MIXES, SECONDS, Asked, generated, traced
from stoker.backtests.data import CONVERSATION, data_file
from stoker.backtests.kv_asked import reliability_error
from stoker.bench.figures import Figure, Report, at_most
from stoker.replay.mooncake import TRACE_BLOCK_TOKENS, read_trace
from stoker.simulator.blocks import BlockPool

REPLICAS = 4
CAPACITIES = {"small": 188, "large": 500}
"""Blocks of a replica: a fraction of what is hot, and most of it."""
TRACE_CAPACITIES = {"1m": 1_000_000, "3m": 3_000_000, "10m": 10_000_000}
"""Tokens of all replicas together, as in backtest `kv`."""
SLIDE_MS = 10_000
FOUND = 5
"""Hot prefixes a slide of which it becomes known whether a replica has them."""
JUDGED = 50
"""Of which it is foretold: with fewer, chance alone would look like an error of 0.03."""
LEAST_PER_S = 0.003
"""What is asked for more rarely is no candidate: the default bar of P(asked)."""
SEEDS = (21, 22, 23)
GOAL = 0.05
RULES = ("spec", "hidden", "told")

Said = dict[str, list[tuple[float, bool]]]
"""By rule: what was foretold, and whether the prefix was absent."""


class _Replica:
    """A pool that takes one request at a time, and what it tells of itself."""

    def __init__(self, name: str, blocks: int, block_tokens: int) -> None:
        self.name, self._block_tokens = name, block_tokens
        self._pool = BlockPool(blocks + 1, block_tokens)  # one is the null block
        self._queried = self._found = 0

    def request(self, blocks: Sequence[bytes]) -> None:
        tokens = len(blocks) * self._block_tokens
        held = self._pool.admit(blocks, tokens + 1, tokens + 1)  # the last token of a prompt is never found
        if held is None:
            return  # longer than the pool
        self._queried += tokens
        self._found += held.hit_blocks * self._block_tokens
        self._pool.store(held, tokens)
        self._pool.release(held)

    def lacks(self, blocks: Sequence[bytes]) -> bool:
        return self._pool.resident_blocks(blocks) < len(blocks)

    def sample(self, at_ms: int) -> ReplicaSample:
        return ReplicaSample(
            replica=self.name,
            pool="gpu",
            incarnation="1",
            sampled_at_ms=at_ms,
            state="ready",
            blocks_total=self._pool.usable,
            block_tokens=self._block_tokens,
            prefix_query_tokens=self._queried,
            prefix_hit_tokens=self._found,
        )


class _Pool:
    """Replicas of one capacity, and what is believed of them."""

    def __init__(self, blocks: int, block_tokens: int, seed: int) -> None:
        config, first_ms = PlanConfig(), float(PlanPolicy().prefix_resident_ms)
        self._source = random.Random(seed)
        self._replicas = [_Replica(f"r{number}", blocks, block_tokens) for number in range(REPLICAS)]
        decay = Decay.half_life(config.half_life_ms)
        self._fleet = Fleet(config.stale_ms, decay, Section(MemoryMapStore(), ""))
        self._stays = {name: StayTime(first_ms, Section(MemoryMapStore(), "")) for name in ("hidden", "told")}
        self._first_ms = first_ms
        self.said: Said = {rule: [] for rule in RULES}

    def request(self, blocks: Sequence[bytes]) -> None:
        self._source.choice(self._replicas).request(blocks)

    def look(self, at_ms: int) -> None:
        """A tick: the replicas tell of themselves."""
        for replica in self._replicas:
            self._fleet.on_sample(replica.sample(at_ms))
        self._stays["told"].expect(self._fleet.stay_ms(self._fleet.ready(at_ms).names, at_ms))

    def judge(self, blocks: Sequence[bytes], rate_per_s: float) -> None:
        """Foretells whether a replica has a prefix, and looks."""
        absent = self._source.choice(self._replicas).lacks(blocks)
        for rule, said in self.said.items():
            stay = self._stays.get(rule)
            stay_ms = stay.ms if stay is not None and stay.ms is not None else self._first_ms
            said.append((p_absent_prior(rate_per_s, REPLICAS, stay_ms), absent))

    def find(self, at_ms: int, blocks: Sequence[bytes], rate_per_s: float) -> None:
        """A warm-up tells whether its replica had the prefix."""
        replica = self._source.choice(self._replicas)
        absent = replica.lacks(blocks)
        for rule, stay in self._stays.items():
            if rule == "hidden" or self._fleet.settled(replica.name, at_ms, stay.learns_after_ms):
                stay.learn(rate_per_s / REPLICAS, absent)


@dataclass
class _Hotness:
    """Decayed hotness of prefixes, as the prefix tree of the job has it."""

    decay: Decay = field(default_factory=lambda: Decay.half_life(PlanConfig().half_life_ms))
    levels: dict[bytes, float] = field(default_factory=dict)
    paths: dict[bytes, tuple[Sequence[bytes], int]] = field(default_factory=dict)

    def add(self, asked: Asked) -> None:
        mark = self.decay.mark(1.0, asked.at_ms)
        for count in asked.prefixes:
            key = asked.blocks[count - 1]
            if key in self.levels:
                self.levels[key] = self.decay.added(self.levels[key], 1.0, asked.at_ms)
            else:
                self.levels[key] = mark
                self.paths[key] = (asked.blocks, count)

    def hot(self, at_ms: int) -> list[bytes]:
        least = self.decay.level_of(LEAST_PER_S / self.decay.rate_per_s(1.0), at_ms)
        return [key for key, level in self.levels.items() if level >= least]

    def path(self, key: bytes) -> Sequence[bytes]:
        blocks, count = self.paths[key]
        return blocks[:count]

    def rate_per_s(self, key: bytes, at_ms: int) -> float:
        return self.decay.rate_per_s(self.decay.amount(self.levels.get(key, EMPTY), at_ms))


def run() -> Report:
    """Figures reliability.{spec,hidden,told}.CASE: of each load the mean over mixes, capacities and seeds, with the
    worst of them as reliability_worst, and of each size the Mooncake conversation trace."""
    report = Report("absent")
    for load in LOADS:
        errors: dict[str, list[float]] = {rule: [] for rule in RULES}
        for mix in MIXES.values():
            for seed in SEEDS:
                requests = generated(mix, LOADS[load], seed)
                for said in played(requests, SECONDS * 1000, CAPACITIES, BLOCK_TOKENS, seed).values():
                    for rule in RULES:
                        errors[rule].append(reliability_error(said[rule]))
        for figure in figures(load, {rule: fmean(found) for rule, found in errors.items()}):
            report.add(figure)
        for figure in figures(load, {rule: max(found) for rule, found in errors.items()}, "reliability_worst"):
            report.add(figure)
    lines = read_trace(data_file(CONVERSATION))
    blocks = {name: tokens // TRACE_BLOCK_TOKENS // REPLICAS for name, tokens in TRACE_CAPACITIES.items()}
    trace = played(traced(lines), lines[-1].timestamp, blocks, TRACE_BLOCK_TOKENS, SEEDS[0])
    for name, said in trace.items():
        for figure in figures(name, {rule: reliability_error(said[rule]) for rule in RULES}):
            report.add(figure)
    return report


def figures(case: str, errors: Mapping[str, float], name: str = "reliability") -> Iterator[Figure]:
    """The error of each rule in a case, beside that of what policy says."""
    spec = errors["spec"]
    yield Figure(f"{name}.spec.{case}", spec)
    for rule in RULES[1:]:
        yield Figure(f"{name}.{rule}.{case}", errors[rule], baseline=spec, goal=at_most(GOAL))


def played(
    requests: Iterable[Asked], end_ms: float, blocks: Mapping[str, int], block_tokens: int, seed: int
) -> dict[str, Said]:
    """What was foretold of replicas of each capacity, and what was found.

    Args:
        blocks: of a replica, by the name of the capacity.
    """
    source, hotness = random.Random(seed), _Hotness()
    pools = {name: _Pool(count, block_tokens, seed) for name, count in blocks.items()}
    slide_ms = SLIDE_MS
    for asked in requests:
        while asked.at_ms >= slide_ms:
            hot = [(hotness.path(key), hotness.rate_per_s(key, slide_ms)) for key in hotness.hot(slide_ms)]
            judged = source.choices(hot, k=JUDGED) if hot and slide_ms * 2 > end_ms else []
            found = source.sample(hot, min(FOUND, len(hot)))
            for pool in pools.values():
                pool.look(slide_ms)
                for path, rate_per_s in judged:
                    pool.judge(path, rate_per_s)
                for path, rate_per_s in found:
                    pool.find(slide_ms, path, rate_per_s)
            slide_ms += SLIDE_MS
        hotness.add(asked)
        for pool in pools.values():
            pool.request(asked.blocks)
    return {name: pool.said for name, pool in pools.items()}
