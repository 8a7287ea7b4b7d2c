"""Bench `entropy`: the entropy of a sliding window of requests, kept up to date against counting it again (D2).

Requests ask for queries by a Zipf law of exponent 1.1; each one enters the window of 100,000 and the oldest leaves. An
event is both, and finding the number of its query. The baseline is what scipy does with the window's counts, gathered
again by numpy, once a batch; it is measured after every ninth of the run, where both entropies are compared. Time is
CPU time, as in algorithms.md. Events one at a time are compared with river, whose entropy knows no window.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field

import numpy as np

from analytics.key_numbers import KeyNumbers
from analytics.running_entropy import EntropyColumn, Integers, RunningEntropy
from stoker.bench import river_baselines
from stoker.bench.figures import Figure, Report, at_most

WINDOW = 100_000
EXPONENT = 1.1
DISTINCT = 10_000_000
"""Queries that could be asked for; some 40,000 of them are in a window."""

BATCHES = (128, 1_024)
RECOUNTS = 9
SINGLE = 100_000
"""Events that are counted one at a time."""

MAX_ERROR_BITS = 1e-9


@dataclass
class _Run:
    """What one size of batch came to."""

    us: list[float] = field(default_factory=list)
    recount_us: list[float] = field(default_factory=list)
    max_error_bits: float = 0.0


def run(events: int = 1_000_000) -> Report:
    """Figures us_per_event, by size of batch and one at a time, and max_error in bits.

    Args:
        events: requests of each run; a run of few has a window of half of them.
    """
    hashes = zipf(events)
    window = min(WINDOW, events // 2)
    report, runs = Report("entropy"), {size: _batched(hashes, size, window) for size in BATCHES}
    for size, each in runs.items():
        us, recount_us = statistics.median(each.us), statistics.median(each.recount_us)
        name = "us_per_event" if size == BATCHES[0] else f"us_per_event.batch_{size}"
        report.add(Figure(name, us, "us", baseline=recount_us, goal=at_most(1)))
    single = hashes[:SINGLE].tolist()
    river_us = river_baselines.entropy_us(single) if river_baselines.installed() else None
    if river_us is None:
        print(f"us_per_event.single: {river_baselines.ABSENT}")
    report.add(Figure("us_per_event.single", _single(single, window // 2), "us", baseline=river_us))
    worst = max(each.max_error_bits for each in runs.values())
    report.add(Figure("max_error", worst, "bits", goal=at_most(MAX_ERROR_BITS)))
    return report


def zipf(events: int, seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
    """64-bit hashes of queries, by a Zipf law cut off at `DISTINCT`."""
    source = np.random.default_rng(seed)
    found = np.empty(0, dtype=np.uint64)
    while len(found) < events:
        drawn = source.zipf(EXPONENT, 2 * events)
        found = np.concatenate((found, drawn[drawn < DISTINCT].astype(np.uint64)))
    return found[:events] * np.uint64(0x9E3779B97F4A7C15)


def _batched(hashes: np.ndarray[tuple[int, ...], np.dtype[np.uint64]], size: int, window: int) -> _Run:
    """Plays all requests in batches; CPU time is taken over the stretch between two comparisons."""
    numbers, column = KeyNumbers[int](), EntropyColumn()
    ring: Integers = np.zeros(window // size * size, dtype=np.int64)
    asked = hashes.tolist()
    batches = len(asked) // size
    stops = {max(1, batches * number // RECOUNTS) for number in range(1, RECOUNTS + 1)}
    found, spent, done = _Run(), 0.0, 0
    for batch in range(batches):
        start = batch * size
        place = start % len(ring)
        began = time.process_time()
        entering = numbers.of(asked[start : start + size])
        if start >= len(ring):
            leaving = ring[place : place + size]
            column.exchange(entering, leaving)
            numbers.release(leaving[column.counts[leaving] == 0].tolist())
        else:
            column.add(entering)
        ring[place : place + size] = entering
        bits = column.sums.entropy_bits
        spent += time.process_time() - began
        done += size
        if batch + 1 in stops:
            found.us.append(spent / done * 1e6)
            spent, done = 0.0, 0
            began = time.process_time()
            truth = _recount(ring[: min(start + size, len(ring))])
            found.recount_us.append((time.process_time() - began) / size * 1e6)
            found.max_error_bits = max(found.max_error_bits, abs(bits - truth))
    return found


def _recount(window: Integers) -> float:
    from scipy.stats import entropy

    _, counts = np.unique(window, return_counts=True)
    return float(entropy(counts, base=2))


def _single(asked: list[int], window: int) -> float:
    counts = RunningEntropy()
    began = time.process_time()
    for place, query in enumerate(asked):
        counts.add(query)
        if place >= window:
            counts.remove(asked[place - window])
    return (time.process_time() - began) / max(1, len(asked)) * 1e6
