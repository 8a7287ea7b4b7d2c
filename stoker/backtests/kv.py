"""Backtest `kv`: what caches of 1M, 3M and 10M tokens find of the Mooncake conversation trace (D11).

Bounds: LRU, per-block Belady, and a cache without end (algorithms.md §3). Every block of the trace counts as full.
"""

from __future__ import annotations

from analytics.cache_models import EndlessCache, LruCache, Prompt, Run, belady, size
from stoker.backtests.data import CONVERSATION, data_file
from stoker.bench.figures import Figure, Report
from stoker.replay.mooncake import TRACE_BLOCK_TOKENS, read_trace

CAPACITIES = {"1m": 1_000_000, "3m": 3_000_000, "10m": 10_000_000}


def run() -> Report:
    """Figures hit_rate.{lru,belady,infinite}.{1m,3m,10m}."""
    prompts: list[Prompt] = [[Run(block, 1) for block in line.hash_ids] for line in read_trace(data_file(CONVERSATION))]
    total = sum(map(size, prompts))
    endless = EndlessCache()
    infinite = sum([endless.request(prompt) for prompt in prompts]) / total
    report = Report("kv")
    for name, tokens in CAPACITIES.items():
        blocks = tokens // TRACE_BLOCK_TOKENS
        cache = LruCache(blocks)
        lru = sum([cache.request(prompt) for prompt in prompts]) / total
        report.add(Figure(f"hit_rate.lru.{name}", lru))
        report.add(Figure(f"hit_rate.belady.{name}", sum(belady(prompts, blocks)) / total, baseline=lru))
        report.add(Figure(f"hit_rate.infinite.{name}", infinite, baseline=lru))
    return report
