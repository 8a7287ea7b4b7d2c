"""Bench `cluster`: the groups of a sliding window of requests, brought up to date against finding them again (D5).

The vectors are MiniLM's of Banking77's 13,083 questions, the requests of the unique stream all of them in turn, so that
none repeats within the window of 10,000; the repeat-heavy stream asks for them by a Zipf law of exponent 1.3. A stride
is 100 requests and the groups after it. The baseline is scikit-learn's DBSCAN of the raw window, from scratch, a few
times in between; there the groups are compared. The other one is river's DBSTREAM of the same vectors, which finds
other groups. Time is CPU time of one thread, as algorithms.md counts and the job's TaskManagers multiply: a second one
of the library that multiplies matrices waits for the first at the processor's cost.
"""

from __future__ import annotations

import csv
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from analytics.cluster_radius import MINILM_INT8_FINGERPRINT, WIDEST_EPS
from analytics.clustering import MIN_SAMPLES
from analytics.sketches import Floats, Ints
from analytics.window_dbscan import WindowConfig, WindowDbscan
from connectors.encoders import build_encoder
from connectors.settings import EncoderSettings
from stoker.backtests.data import data_file
from stoker.bench import river_baselines
from stoker.bench.figures import Figure, Report, at_least, at_most
from stoker.stack.paths import cache_folder

WINDOW = 10_000
STRIDE = 100
EXPONENT = 1.3
RECOUNTS = 3
"""Strides after which scikit-learn finds the groups of the raw window."""
DBSTREAM_STRIDES = 5
"""The first ones of the unique stream, when DBSTREAM is at its quickest."""

FILES = ("text/banking77_train.csv", "text/banking77_test.csv")


@dataclass
class _Run:
    """What one stream came to.

    Attributes:
        stride_s: CPU seconds of each stride of the full window, the groups included.
        sklearn_s: of scikit-learn on the raw window.
        rand: adjusted Rand index at each comparison. cores: whether all core flags were equal.
    """

    stride_s: list[float] = field(default_factory=list)
    sklearn_s: list[float] = field(default_factory=list)
    rand: list[float] = field(default_factory=list)
    cores: bool = True

    @property
    def events_per_s(self) -> float:
        """Requests a second and core, at the median stride."""
        return STRIDE / statistics.median(self.stride_s)


def run(events: int = 20_000) -> Report:
    """Figures adjusted_rand, vs_sklearn, vs_dbstream, unique_ and repeat_events_per_s, and the longest strides.

    Args:
        events: requests of each stream; a run of few has a window of two thirds of them.
    """
    from threadpoolctl import threadpool_limits

    vectors = questions(events)
    eps, window = WIDEST_EPS[MINILM_INT8_FINGERPRINT], min(WINDOW, events * 2 // 3 // STRIDE * STRIDE)
    report = Report("cluster")
    with threadpool_limits(1):
        unique = played(np.arange(events) % len(vectors), vectors, eps, window)
        repeat = played(zipf(events, len(vectors)), vectors, eps, window)
        dbstream_s = _dbstream_s(vectors, eps, window)
    report.add(Figure("adjusted_rand", min(unique.rand + repeat.rand), goal=at_least(1.0)))
    report.add(Figure("core_flags_equal", float(unique.cores and repeat.cores), goal=at_least(1.0)))
    for name, each, goal in (("unique", unique, 6_000), ("repeat", repeat, 50_000)):
        report.add(Figure(f"{name}_events_per_s", each.events_per_s, "1/s", goal=at_least(goal)))
        p99_ms = 1000 * statistics.quantiles(each.stride_s, n=100, method="inclusive")[98]
        report.add(Figure(f"stride_p99_ms.{name}", p99_ms, "ms", goal=at_most(30) if each is unique else None))
    for name, others_s, goal in (("sklearn", unique.sklearn_s, 60), ("dbstream", dbstream_s, 10)):
        if others_s:
            faster = statistics.median(others_s) / statistics.median(unique.stride_s)
            report.add(Figure(f"vs_{name}", faster, "times", goal=at_least(goal)))
    return report


def questions(count: int) -> Floats:
    """Vectors of real questions, at most so many.

    Raises:
        BrokenConfiguration: the data or the exported encoder is absent.
    """
    texts: list[str] = []
    for name in FILES:
        with data_file(name).open(encoding="utf-8", newline="") as file:
            texts += [row["text"] for row in csv.DictReader(file)]
    mixed = np.random.default_rng(0).permutation(len(texts))[:count]
    encoder = build_encoder(EncoderSettings(model=cache_folder() / "models" / "minilm-l6-v2"))
    return np.ascontiguousarray(encoder.encode([texts[number] for number in mixed]), dtype=np.float32)


def zipf(events: int, distinct: int, seed: int = 0) -> Ints:
    """Numbers of questions, by a Zipf law cut off at how many there are."""
    source = np.random.default_rng(seed)
    found = np.empty(0, dtype=np.int64)
    while len(found) < events:
        drawn = source.zipf(EXPONENT, 2 * events)
        found = np.concatenate((found, drawn[drawn <= distinct] - 1))
    return found[:events]


def played(asked: Ints, vectors: Floats, eps: float, window: int) -> _Run:
    """Plays requests in strides; compares a few times after the window has filled."""
    groups = WindowDbscan(WindowConfig(window, eps, MIN_SAMPLES))
    found, strides = _Run(), range(0, len(asked) // STRIDE * STRIDE, STRIDE)
    full = [start for start in strides if start + STRIDE >= window]
    compared = {full[(len(full) - 1) * number // max(1, RECOUNTS - 1)] for number in range(RECOUNTS)}
    names = [str(number) for number in asked.tolist()]
    for start in strides:
        numbers = asked[start : start + STRIDE]
        rows = vectors[numbers]
        began = time.process_time()
        groups.extend(names[start : start + STRIDE], rows)
        groups.density()
        if start + STRIDE > window:
            found.stride_s.append(time.process_time() - began)
        if start in compared:
            _compare(groups, asked[start + STRIDE - window : start + STRIDE], vectors, eps, found)
    return found


def _dbstream_s(vectors: Floats, eps: float, window: int) -> Sequence[float]:
    if not river_baselines.installed():
        print(f"vs_dbstream: {river_baselines.ABSENT}")
        return []
    some = vectors[: DBSTREAM_STRIDES * STRIDE]
    return river_baselines.dbstream_s(some, eps, MIN_SAMPLES, window, STRIDE)


def _compare(groups: WindowDbscan, raw: Ints, vectors: Floats, eps: float, found: _Run) -> None:
    from sklearn.cluster import dbscan
    from sklearn.metrics import adjusted_rand_score

    rows = vectors[raw].astype(np.float64)
    began = time.process_time()
    indices, labels = dbscan(rows, eps=eps, min_samples=MIN_SAMPLES, metric="cosine")
    found.sklearn_s.append(time.process_time() - began)
    cores = np.zeros(len(rows), dtype=bool)
    cores[indices] = True
    held = groups.groups()
    place = {int(query): number for number, query in enumerate(held.queries)}
    at = [place[number] for number in raw.tolist()]
    found.rand.append(float(adjusted_rand_score(labels, np.array(held.labels)[at])))
    found.cores = found.cores and bool((np.array(held.cores)[at] == cores).all())
