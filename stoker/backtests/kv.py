"""Backtest `kv`: what caches of 1M, 3M and 10M tokens find of the Mooncake conversation trace (D11).

Bounds: LRU, Belady by block with bypass, and a cache without end (algorithms.md §3). `spec` is decayed hotness with
the fixed half-life of the prefix tree, `hotness` lets it tune itself, `stoker` keeps by learned reuse, with hotness as
prior, and `stoker_warm` has warm-ups out of the host tier as well. Every block of the trace counts as full, the last
too, as in all published figures. Nothing is fitted to the trace. `kv_asked` judges what the prefix tree foretells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analytics.cache_models import EndlessCache, LruCache, Prompt, Run, belady, size
from analytics.host_tier import HostTierConfig, WarmupCounts
from analytics.hot_cache import HotCache
from analytics.prefixes import PrefixConfig
from analytics.retention import RetentionConfig
from stoker.backtests.data import CONVERSATION, data_file
from stoker.backtests.kv_asked import asked_figures
from stoker.bench.figures import Figure, Goal, Report, at_least
from stoker.replay.mooncake import TRACE_BLOCK_TOKENS, Line, read_trace

CAPACITIES = {"1m": 1_000_000, "3m": 3_000_000, "10m": 10_000_000}
HOST_TOKENS = 50_000_000
RETENTION_GOALS = {"1m": 0.111, "3m": 0.180, "10m": 0.299}
WARM_GOALS = {"3m": 0.25}


@dataclass(frozen=True)
class Trace:
    """Prompts in the order of their arrival."""

    prompts: Sequence[Prompt]
    at_ms: Sequence[int]

    @classmethod
    def of(cls, lines: Sequence[Line]) -> Trace:
        """The requests of a Mooncake trace."""
        return cls([[Run(block, 1) for block in line.hash_ids] for line in lines], [line.timestamp for line in lines])

    @property
    def blocks(self) -> int:
        """Blocks of all prompts."""
        return sum(map(size, self.prompts))

    def share(self, request: Callable[[Prompt, float], int]) -> float:
        """What share of the blocks a cache finds."""
        pairs = zip(self.prompts, self.at_ms, strict=True)
        return sum([request(prompt, at_ms) for prompt, at_ms in pairs]) / self.blocks


def run() -> Report:
    """Figures hit_rate.{lru,spec,hotness,stoker,stoker_warm,belady,infinite}.SIZE, of the warm-ups of each size, and of
    how well it was foretold what would be asked for."""
    lines = read_trace(data_file(CONVERSATION))
    report = judge(Trace.of(lines), CAPACITIES)
    for figure in asked_figures(lines):
        report.add(figure)
    return report


def judge(trace: Trace, capacities: dict[str, int]) -> Report:
    """Plays a trace through every cache.

    Args:
        capacities: tokens of each size, by its name in the figures.
    """
    report = Report("kv")
    endless = EndlessCache()
    infinite = trace.share(lambda prompt, _: endless.request(prompt))
    for name, tokens in capacities.items():
        blocks = tokens // TRACE_BLOCK_TOKENS
        cache = LruCache(blocks)
        lru = trace.share(lambda prompt, _, cache=cache: cache.request(prompt))  # type: ignore[misc]

        def add(kind: str, value: float, goal: Goal | None = None, name: str = name, lru: float = lru) -> None:
            report.add(Figure(f"hit_rate.{kind}.{name}", value, baseline=None if kind == "lru" else lru, goal=goal))

        add("lru", lru)
        knobs = PrefixConfig()
        add("spec", trace.share(HotCache(blocks, knobs.half_life_ms, knobs.max_ghosts).request))
        add("hotness", trace.share(RetentionConfig().build(blocks).request))
        host_blocks = HOST_TOKENS // TRACE_BLOCK_TOKENS
        retained = trace.share(HostTierConfig(budget_share=0.0).build(blocks, host_blocks).request)
        add("stoker", retained, at_least(RETENTION_GOALS[name]) if name in RETENTION_GOALS else None)
        warmed = HostTierConfig().build(blocks, host_blocks)
        best = sum(belady(trace.prompts, blocks)) / trace.blocks
        warm = trace.share(warmed.request)
        add("stoker_warm", warm, at_least(WARM_GOALS.get(name, (lru + best) / 2)))
        add("belady", best)
        add("infinite", infinite)
        for figure in warm_up_figures(name, warmed.counts, trace.blocks, infinite - warm):
            report.add(figure)
    return report


def warm_up_figures(name: str, counts: WarmupCounts, demanded_blocks: int, missed: float) -> list[Figure]:
    """How good the warm-ups were.

    Accuracy: of the blocks moved, those found by a request. Coverage: of what would have been missed though known,
    what they made a hit. Lateness: of the warm-ups asked for, those still under way. Pollution: blocks that they
    displaced and that were asked for, by block demanded. Moved: blocks moved by block demanded, at most 1.

    Args:
        missed: share of the blocks demanded that were known and missed nevertheless.
    """
    useful = counts.useful
    return [
        Figure(f"accuracy.{name}", useful / max(1, counts.moved)),
        Figure(f"coverage.{name}", useful / max(1.0, useful + missed * demanded_blocks)),
        Figure(f"lateness.{name}", counts.late / max(1, counts.late + useful)),
        Figure(f"pollution.{name}", counts.displaced_asked / demanded_blocks),
        Figure(f"moved.{name}", counts.moved / demanded_blocks, goal=Goal("<=", 1.0)),
    ]
