"""Backtest `cluster`: groups of real questions against the intents that people gave them (D5).

Banking77: radii are calibrated, without labels, on the training half; judged is the test half. There are two streams:
`even` asks for every intent alike, `skewed` for the n-th 1/n as often as the first; within an intent questions repeat
by the same law. At three moments the reference rule groups the last 500 distinct questions and the tuned rule the last
10,000 requests. Both are judged on the same questions, the last 500 distinct ones; what is in no group counts as a
group of its own in the adjusted Rand index against the intents, and so does a question that is dense by itself alone,
which the job leaves to demand. The baseline of the tuned rule is the better of the two radii of the reference rule.
Purity is the grouped questions' share that is of their group's most frequent intent, and means little without the share
that is grouped.
"""

from __future__ import annotations

import csv
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from analytics.cluster_radius import calibrate_eps, widest_eps
from analytics.clustering import MIN_SAMPLES, NOISE, SPEC_EPS, cluster, purity
from analytics.sketches import Floats, Ints
from analytics.window_dbscan import WindowConfig, WindowDbscan
from connectors.encoders import Encoder, build_encoder
from connectors.settings import EncoderSettings
from stoker.backtests.data import data_file
from stoker.bench.figures import Figure, Report, at_least
from stoker.stack.paths import cache_folder

TRAIN, TEST = "text/banking77_train.csv", "text/banking77_test.csv"
WINDOW = 10_000
SPEC_WINDOW = 500
MOMENTS = 3
STRIDE = 100
BETWEEN = 2_500
"""Requests between two moments."""


@dataclass(frozen=True)
class Questions:
    """Vectors, and the number of each one's intent."""

    vectors: Floats
    intents: Ints


@dataclass(frozen=True)
class Judged:
    """Groups against intents; means over the moments."""

    adjusted_rand: float
    purity: float
    largest_share: float
    grouped: float
    groups: float


def run() -> Report:
    """Adjusted Rand, purity, share of the largest and of the grouped, by rule and stream."""
    encoder = build_encoder(EncoderSettings(model=cache_folder() / "models" / "minilm-l6-v2"))
    train, test = read_questions(TRAIN, encoder), read_questions(TEST, encoder)
    report = Report("cluster")
    radii = {
        "spec": SPEC_EPS,
        "spec_calibrated": calibrate_eps(train.vectors),
        "tuned": widest_eps(train.vectors),
    }
    for name, skewed in (("even", False), ("skewed", True)):
        asked = stream(test.intents, WINDOW + (MOMENTS - 1) * BETWEEN, skewed)
        distinct = len(set(asked[:WINDOW].tolist()))
        report.add(Figure(f"distinct.{name}", distinct, "questions"))
        best: Judged | None = None
        for rule, eps in radii.items():
            found = played(test, asked, eps, tuned=rule == "tuned")
            base = best if rule == "tuned" else None
            not_below = at_least(1.0, of="ratio") if base is not None else None
            report.add(Figure(f"eps.{rule}.{name}", eps))
            for figure in fields(Judged):
                value = getattr(found, figure.name)
                baseline = None if base is None else getattr(base, figure.name)
                goal = not_below if figure.name == "adjusted_rand" else None
                report.add(Figure(f"{figure.name}.{rule}.{name}", value, baseline=baseline, goal=goal))
            if best is None or found.adjusted_rand > best.adjusted_rand:
                best = found
    return report


def read_questions(name: str, encoder: Encoder) -> Questions:
    """One half of the data set.

    Raises:
        BrokenConfiguration: it is absent.
    """
    with data_file(name).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    numbers = {intent: number for number, intent in enumerate(sorted({row["category"] for row in rows}))}
    vectors = np.ascontiguousarray(encoder.encode([row["text"] for row in rows]), dtype=np.float32)
    return Questions(vectors, np.array([numbers[row["category"]] for row in rows], dtype=np.int64))


def stream(intents: Ints, requests: int, skewed: bool, seed: int = 0) -> Ints:
    """Numbers of questions in the order in which they are asked for."""
    source = np.random.default_rng(seed)
    kinds = int(intents.max()) + 1
    share = np.ones(kinds)
    if skewed:
        share[source.permutation(kinds)] = 1 / np.arange(1, kinds + 1)
    each = np.zeros(len(intents))
    for kind in range(kinds):
        own = source.permutation(np.flatnonzero(intents == kind))
        falling = 1 / np.arange(1, len(own) + 1)
        each[own] = share[kind] * falling / falling.sum()
    drawn: Ints = source.choice(len(intents), requests, p=each / each.sum())
    return drawn


def played(questions: Questions, asked: Ints, eps: float, tuned: bool, window: int = WINDOW) -> Judged:
    """Groups at each moment, judged on the last distinct questions.

    Args:
        tuned: groups the last requests as they come; else the reference rule groups the questions that are judged.
    """
    live = WindowDbscan(WindowConfig(window, eps, MIN_SAMPLES))
    found = []
    for start in range(0, len(asked), STRIDE):
        some = asked[start : start + STRIDE]
        if tuned:
            live.extend([str(number) for number in some.tolist()], questions.vectors[some])
        end = start + len(some)
        if end < window or (end - window) % BETWEEN:
            continue
        judged = list(dict.fromkeys(reversed(asked[:end].tolist())))[:SPEC_WINDOW]
        if tuned:
            groups = live.groups()
            sizes = Counter(groups.labels)
            by_query = dict(zip(groups.queries, groups.labels, strict=True))
            labels = [by_query.get(str(number), NOISE) for number in judged]
            labels = [label if sizes[label] > 1 else NOISE for label in labels]
        else:
            labels = list(cluster(questions.vectors[judged], eps=eps).labels)
        found.append(_judged(labels, questions.intents[judged].tolist()))
    return Judged(*(statistics.mean(column) for column in zip(*found, strict=True)))


def _judged(labels: Sequence[int], intents: Sequence[int]) -> tuple[float, float, float, float, float]:
    from sklearn.metrics import adjusted_rand_score

    groups = set(labels) - {NOISE}
    alone = [label if label != NOISE else -2 - number for number, label in enumerate(labels)]
    largest = max((labels.count(group) for group in groups), default=0)
    return (
        float(adjusted_rand_score(intents, alone)),
        purity(labels, intents),
        largest / len(labels),
        1 - labels.count(NOISE) / len(labels),
        len(groups),
    )
