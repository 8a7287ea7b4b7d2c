"""Bench `embed`: vectors of real questions in both precisions, against sentence-transformers on torch.

The questions are the test half of Banking77, 15 tokens each on average, mixed. The reference runs as it comes, in fp32,
on the same model; all have one thread. They take turns over the same texts, in calls of one text, of 8 and 16 as a job
makes them, and of 160, where the reference too has enough to put texts of like length together. Time is CPU time, as in
the other benches: what a call takes on a core of its own. Cosines are to the reference's vectors. Precision at 10 is
the share of a question's ten nearest that are of its intent. The goals are those of the default precision.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from connectors.encoders import Matrix, build_encoder
from connectors.encoders.export import PRECISIONS
from connectors.encoders.source import model_folder
from connectors.settings import EncoderSettings, Precision
from stoker.backtests.data import data_file
from stoker.bench.figures import Figure, Report, at_least, at_most
from stoker.stack.paths import cache_folder

QUESTIONS = "text/banking77_test.csv"
BATCH = 16
CALLS = (1, BATCH // 2, BATCH, 10 * BATCH)
"""Texts in a call. Of a round's texts, calls of one see a tenth."""
NEAREST = 10
REFERENCE = "reference"

Encode = Callable[[Sequence[str]], Matrix]


@dataclass
class Timed:
    """What one encoder took in calls of one size: texts, and CPU seconds of each call."""

    texts: int = 0
    call_s: list[float] = field(default_factory=list)

    @property
    def texts_per_s(self) -> float:
        """Texts a second and core."""
        return self.texts / sum(self.call_s)


def run(events: int = 3_080) -> Report:
    """Figures texts_per_s, vs_reference, p99_ms, cosines, batch_invariance_min and p10_loss, by precision.

    Args:
        events: questions, more than ten.
    """
    texts, intents = questions(events)
    encoders: dict[str, Encode] = {precision: exported(precision) for precision in PRECISIONS}
    timed, vectors = played({REFERENCE: reference(), **encoders}, texts)
    report = Report("embed")
    near = precision_at_10(vectors[REFERENCE], intents)
    for precision, encode in encoders.items():
        judged = precision == EncoderSettings().precision
        for size in CALLS:
            name, took = f"{precision}.calls_of_{size}", timed[precision, size]
            base = timed[REFERENCE, size].texts_per_s
            report.add(Figure(f"texts_per_s.{name}", took.texts_per_s, "1/s", baseline=base))
            faster = took.texts_per_s / base
            report.add(Figure(f"vs_reference.{name}", faster, "times", goal=at_least(2) if judged else None))
            if size <= BATCH:
                p99_ms = 1000 * float(np.quantile(took.call_s, 0.99))
                report.add(Figure(f"p99_ms.{name}", p99_ms, "ms", goal=at_most(30) if judged else None))
        cosines = (vectors[precision] * vectors[REFERENCE]).sum(axis=1)
        goal = at_least(0.99) if judged else None
        report.add(Figure(f"cosine_mean.{precision}", float(cosines.mean()), goal=goal))
        report.add(Figure(f"cosine_min.{precision}", float(cosines.min())))
        varied = batch_invariance(encode, texts[: 10 * BATCH], vectors[precision])
        report.add(Figure(f"batch_invariance_min.{precision}", varied, goal=at_least(1) if judged else None))
        own = precision_at_10(vectors[precision], intents)
        report.add(Figure(f"p10.{precision}", own, baseline=near))
        report.add(Figure(f"p10_loss.{precision}", 1 - own / near, goal=at_most(0.01) if judged else None))
    return report


def questions(count: int) -> tuple[list[str], list[str]]:
    """Texts and intents, mixed, at most so many.

    Raises:
        BrokenConfiguration: the data is absent.
    """
    with data_file(QUESTIONS).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    mixed = np.random.default_rng(0).permutation(len(rows))[:count]
    return [rows[n]["text"] for n in mixed], [rows[n]["category"] for n in mixed]


def exported(precision: Precision) -> Encode:
    """The encoder of the jobs, in one thread.

    Raises:
        BrokenConfiguration: its model was not exported.
    """
    default = EncoderSettings()
    model = cache_folder() / "models" / default.model.name
    return build_encoder(default.model_copy(update={"model": model, "precision": precision, "batch": BATCH})).encode


def reference() -> Encode:
    """sentence-transformers as it comes, but for one thread."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    model: Any = SentenceTransformer(str(model_folder()), device="cpu", local_files_only=True)

    def encode(texts: Sequence[str]) -> Matrix:
        found: Matrix = model.encode(
            list(texts), batch_size=BATCH, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
        )
        return found

    return encode


def played(
    encoders: Mapping[str, Encode], texts: Sequence[str]
) -> tuple[dict[tuple[str, int], Timed], dict[str, Matrix]]:
    """Times by encoder and size of a call, and each encoder's vectors; the encoders take turns at every size."""
    timed = {(name, size): Timed() for name in encoders for size in CALLS}
    vectors: dict[str, list[Matrix]] = {name: [] for name in encoders}
    names = list(encoders)
    for encode in encoders.values():
        encode(texts[:BATCH])
    for turn, start in enumerate(range(0, len(texts), CALLS[-1])):
        some = texts[start : start + CALLS[-1]]
        for size in CALLS:
            seen = some[:BATCH] if size == 1 else some
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                found = [
                    _call(encoders[name], seen[n : n + size], timed[name, size]) for n in range(0, len(seen), size)
                ]
                if size == CALLS[-1]:
                    vectors[name] += found
    return timed, {name: np.vstack(found) for name, found in vectors.items()}


def _call(encode: Encode, texts: Sequence[str], timed: Timed) -> Matrix:
    began = time.process_time()
    vectors = encode(texts)
    timed.call_s.append(time.process_time() - began)
    timed.texts += len(texts)
    return vectors


def batch_invariance(encode: Encode, texts: Sequence[str], together: Matrix) -> float:
    """The least cosine of a text's vector alone to that among others; 1 where all are equal bit by bit."""
    alone = np.vstack([encode([text]) for text in texts])
    among = np.vstack([encode(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)])
    others = (among, together[: len(texts)])
    if all(np.array_equal(alone, other) for other in others):
        return 1.0
    return min(float((alone * other).sum(axis=1).min()) for other in others)


def precision_at_10(vectors: Matrix, intents: Sequence[str]) -> float:
    """The share of the ten nearest other questions that are of a question's own intent; mean over questions."""
    near = vectors @ vectors.T
    np.fill_diagonal(near, -np.inf)
    nearest = np.argpartition(-near, NEAREST, axis=1)[:, :NEAREST]
    kinds = np.array(intents)
    return float((kinds[nearest] == kinds[:, None]).mean())
